//! Overview of the children for people, without starting any.

use jiff::Timestamp;

use crate::suites::Suites;
use crate::tool_index::describe;

/// Cached facts about one child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Name of the child.
    pub name: String,
    /// Name of its suite tool; `None` if its tools are flat.
    pub tool: Option<String>,
    /// Description shown to models.
    pub description: String,
    /// Number of offered tools, and when they were listed; `None` if they never were.
    pub tools: Option<(usize, Timestamp)>,
}

impl Suites {
    /// Returns cached facts about all children, sorted by name.
    pub fn overview(&self) -> Vec<Overview> {
        let table = self.table();
        let describe_suite = |suite: &std::sync::Arc<crate::suite::Suite>| Overview {
            name: suite.spec.name.clone(),
            tool: (!suite.is_flat()).then(|| suite.rules.tool_name.clone()),
            description: describe(suite, &table.config, &table.descriptions),
            tools: suite.cached().map(|catalogue| (suite.offered(&catalogue).len(), catalogue.taken_at)),
        };
        table.suites.iter().map(describe_suite).collect()
    }
}
