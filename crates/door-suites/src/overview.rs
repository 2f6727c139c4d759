//! Overview of the children, shown to people. Starts no child.

use jiff::Timestamp;

use crate::suites::Suites;
use crate::tool_index::describe;

/// Overview of one child, from cached data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Name of the child.
    pub name: String,
    /// Name of the child's suite tool; `None` if the tools are flat.
    pub tool: Option<String>,
    /// Description shown to models.
    pub description: String,
    /// Number of offered tools, and the time of the listing; `None` if the tools were never listed.
    pub tools: Option<(usize, Timestamp)>,
}

impl Suites {
    /// Returns the overviews of all children from cached data, sorted by name.
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
