//! Table of the discovered children, and its reload when settings or files change.

use std::sync::Arc;

use futures_util::future::join_all;

use super::{Suites, SuitesEvent, differs};
use crate::child::{Child, ChildOptions};
use crate::config::Config;
use crate::descriptions::Descriptions;
use crate::discovery::{Issue, discover};
use crate::redact::{Secrets, redact};
use crate::rules::Rules;
use crate::spec::ChildSpec;
use crate::suite::Suite;

/// The children found by the last discovery.
pub(crate) struct Table {
    pub(crate) config: Config,
    /// The suites, sorted by child name.
    pub(crate) suites: Vec<Arc<Suite>>,
    pub(super) issues: Vec<Issue>,
    pub(crate) descriptions: Descriptions,
}

impl Suites {
    /// Applies new settings and rediscovers the children.
    ///
    /// A child whose spec is unchanged continues to run, unless its trust was revoked.
    pub async fn reload(&self, config: Config) {
        let before = self.tools();
        let (table, removed) = self.discover_table(config);
        for suite in &table.suites {
            suite.reset_trust();
            if suite.child.initialized().is_some() && suite.check_trust().is_err() {
                suite.child.stop().await;
            }
        }
        *self.inner.table.write() = Arc::new(table);
        self.invalidate_index();
        join_all(removed.iter().map(|suite| suite.child.close())).await;
        if differs(&before, &self.tools()) {
            let _ = self.inner.shared.events.send(SuitesEvent::ToolsChanged);
        }
    }

    /// Discovers the children, reusing unchanged suites. Also returns the removed suites.
    pub(super) fn discover_table(&self, config: Config) -> (Table, Vec<Arc<Suite>>) {
        let old = self.table();
        let found = discover(&config, &self.inner.shared.paths);
        let mut issues = found.issues;
        let descriptions = Descriptions::load(&self.inner.shared.paths).unwrap_or_else(|problem| {
            issues.push(problem);
            Descriptions::default()
        });
        let mut suites = Vec::new();
        for spec in found.children {
            let rules = Rules::of(&config, &spec);
            let before = old.suites.iter().find(|suite| *suite.spec == spec);
            let (suite, broken) = match before {
                Some(suite) if suite.rules == rules => (suite.clone(), Vec::new()),
                Some(before) => {
                    let (suite, broken) = Suite::new(
                        before.spec.clone(),
                        before.child.clone(),
                        rules,
                        self.inner.shared.clone(),
                    );
                    suite.inherit(before);
                    (suite, broken)
                }
                None => {
                    let spec = Arc::new(spec);
                    let child = Child::with_options(
                        Arc::new(self.inner.proxy_chain.add_to(&spec)),
                        self.child_options(&spec),
                    );
                    Suite::new(spec, child, rules, self.inner.shared.clone())
                }
            };
            let file = suite.spec.file.clone();
            issues.extend(broken.into_iter().map(|message| Issue {
                file: file.clone(),
                message,
                child: Some(suite.spec.name.clone()),
            }));
            suites.push(suite);
        }
        let removed = old
            .suites
            .iter()
            .filter(|old| !suites.iter().any(|suite| suite.spec == old.spec))
            .cloned()
            .collect();
        (Table { config, suites, issues, descriptions }, removed)
    }

    fn child_options(&self, spec: &ChildSpec) -> ChildOptions {
        let secrets = Secrets::of(spec);
        ChildOptions {
            log: self.inner.logs.clone(),
            cache: self.inner.shared.shelf.folder().cloned(),
            guard: self.inner.guard.clone(),
            redact: Some(Arc::new(move |text: &str| redact(text, &secrets))),
            ..ChildOptions::default()
        }
    }
}
