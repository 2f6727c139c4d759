//! What is known of the children without starting any, for a person to read.

use jiff::Timestamp;

use crate::suites::Suites;
use crate::tool_index::describe;

/// What is known of one child.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// Its name.
    pub name: String,
    /// The name of its tool; `None` where its tools are listed one by one.
    pub tool: Option<String>,
    /// What a model is told of it.
    pub description: String,
    /// How many tools it offers, and when it was asked; `None` where it never was.
    pub tools: Option<(usize, Timestamp)>,
}

impl Suites {
    /// What is known of the children, by their names.
    pub fn overview(&self) -> Vec<Overview> {
        let table = self.table();
        let one = |suite: &std::sync::Arc<crate::suite::Suite>| Overview {
            name: suite.spec.name.clone(),
            tool: (!suite.is_flat()).then(|| suite.rules.tool_name.clone()),
            description: describe(suite, &table.config, &table.descriptions),
            tools: suite.cached().map(|catalogue| (suite.offered(&catalogue).len(), catalogue.taken_at)),
        };
        table.suites.iter().map(one).collect()
    }
}
