//! The list of tools that a host sees, and what each name leads to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use switchboard_core::sanitize_description;

use crate::config::Config;
use crate::descriptions::{Descriptions, owner_description, suite_description};
use crate::flat_tools;
use crate::introspect::Offered;
use crate::raw::raw;
use crate::rules::is_tool_name;
use crate::spec::Expose;
use crate::suite::Suite;
use crate::summary::summarise;

/// The tool that searches all suites.
pub(crate) const SEARCH: &str = "switchboard_tools";
/// About fifteen words: what a suite is for, not what all it can do.
const MAX_DESCRIPTION: usize = 100;
/// What an owner wrote is passed on whole up to here: more than a page is hardly meant for a list of tools.
const MAX_OWN_DESCRIPTION: usize = 2_000;

/// How many tools a description names that is made of them.
const NAMED: usize = 4;

/// Where a name leads to.
#[derive(Clone)]
pub(crate) enum Target {
    Suite(Arc<Suite>),
    /// A tool of a child, by the child's name for it.
    Flat(Arc<Suite>, String),
    Search,
}

/// The list, and where its names lead to.
pub(crate) struct ToolIndex {
    pub(crate) tools: Vec<Box<RawValue>>,
    pub(crate) by_name: HashMap<String, Target>,
    pub(crate) issues: Vec<(Arc<Suite>, String)>,
    /// The changes of flat children that it was made after.
    pub(crate) changes: u64,
}

impl ToolIndex {
    /// Makes the list. Suites come first, by the names of their children, then flat tools, each child's in its own
    /// order, then the search. Of two that want one name the first in this order has it.
    pub(crate) fn new(
        suites: &[Arc<Suite>],
        described: (&Config, &Descriptions),
        reserved: &BTreeSet<String>,
        changes: u64,
    ) -> Self {
        let mut top = Self { tools: Vec::new(), by_name: HashMap::new(), issues: Vec::new(), changes };
        let mut taken = reserved.clone();
        taken.insert(SEARCH.to_owned());
        let folded: Vec<_> = suites.iter().filter(|suite| !suite.is_flat()).collect();
        for suite in &folded {
            top.add_suite(suite, described, &mut taken);
        }
        // Of a flat child that nobody trusted there is nothing to list; its suite says who can change that.
        for suite in suites.iter().filter(|suite| suite.is_flat() && suite.check_trust().is_err()) {
            top.add_suite(suite, described, &mut taken);
        }
        top.add_flat(suites, &mut taken);
        if folded.len() > 1 {
            top.tools.push(search_tool());
            top.by_name.insert(SEARCH.to_owned(), Target::Search);
        }
        top
    }

    fn add_suite(
        &mut self,
        suite: &Arc<Suite>,
        described: (&Config, &Descriptions),
        taken: &mut BTreeSet<String>,
    ) {
        let name = &suite.rules.tool_name;
        if !taken.insert(name.clone()) {
            let message = format!(
                "{}: its tool would be called {name}, which is taken. Set suites.{}.suiteName to another name.",
                suite.spec.name, suite.spec.name
            );
            self.issues.push((suite.clone(), message));
            return;
        }
        self.tools.push(suite_tool(suite, described));
        self.by_name.insert(name.clone(), Target::Suite(suite.clone()));
    }

    fn add_flat(&mut self, suites: &[Arc<Suite>], taken: &mut BTreeSet<String>) {
        let flat: Vec<_> = suites
            .iter()
            .filter(|suite| suite.is_flat() && suite.check_trust().is_ok())
            .filter_map(|suite| Some((suite, suite.cached()?)))
            .collect();
        // A bare name is only given to a tool that no other bare child has, so that it does not change hands.
        let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
        for (suite, catalogue) in &flat {
            if suite.spec.expose == (Expose::Flat { bare: true }) {
                for offered in suite.offered(catalogue) {
                    *wanted.entry(offered.tool.name.as_str()).or_default() += 1;
                }
            }
        }
        for (suite, catalogue) in &flat {
            // A model sees no other text about the whole list than the descriptions in it.
            let mut cut = catalogue.cut_note(&suite.spec.name);
            for offered in suite.offered(catalogue) {
                let tool = offered.tool;
                let is_bare = suite.spec.expose == (Expose::Flat { bare: true });
                let is_free = wanted.get(tool.name.as_str()) == Some(&1) && !taken.contains(&tool.name);
                let name = if is_bare && is_free && (is_tool_name(&tool.name) || tool.name.len() <= 64) {
                    tool.name.clone()
                } else {
                    flat_tools::prefixed(&suite.spec.name, &tool.name)
                };
                if is_bare && !is_free {
                    let message = format!(
                        "{}: the name {} is taken, so the tool is called {name}.",
                        suite.spec.name, tool.name
                    );
                    self.issues.push(((*suite).clone(), message));
                }
                if !taken.insert(name.clone()) {
                    let message = format!(
                        "{}: its tool {} would be called {name}, which is taken, and is not listed.",
                        suite.spec.name, tool.name
                    );
                    self.issues.push(((*suite).clone(), message));
                    continue;
                }
                let listed = flat_tools::renamed(offered, &name);
                self.tools.push(match cut.take() {
                    Some(note) => flat_tools::add_note(&listed, &note),
                    None => listed,
                });
                self.by_name.insert(name, Target::Flat((*suite).clone(), tool.name.clone()));
            }
        }
    }
}

/// A tool of our own, in the order in which people write tools: it reads better, and costs fewer tokens.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Own<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

/// The arguments of a suite, as published.
const SUITE_SCHEMA: &str = concat!(
    r#"{"type":"object","properties":{"action":{"type":"string","enum":["introspect","call"]},"#,
    r#""subtool":{"type":"string"},"args":{"type":"object"}},"required":["action"]}"#
);
/// The arguments of the search. It takes `limit` too; that would cost every conversation seven tokens to say.
const SEARCH_SCHEMA: &str = r#"{"type":"object","properties":{"query":{"type":"string"}}}"#;

/// A suite as a tool. Each letter of it is paid for in every conversation.
fn suite_tool(suite: &Suite, (config, descriptions): (&Config, &Descriptions)) -> Box<RawValue> {
    let mut description = describe(suite, config, descriptions);
    if let Some(reason) = &suite.spec.unready {
        let limit = MAX_DESCRIPTION.max(description.chars().count());
        description = summarise(&format!("Cannot be started: {reason}. {description}"), limit);
    }
    own_tool(&suite.rules.tool_name, &description, SUITE_SCHEMA)
}

fn search_tool() -> Box<RawValue> {
    own_tool(SEARCH, "Search all suites", SEARCH_SCHEMA)
}

fn own_tool(name: &str, description: &str, schema: &str) -> Box<RawValue> {
    let input_schema = serde_json::from_str(schema).unwrap_or(RawValue::NULL);
    raw(&Own { name, description, input_schema })
}

/// What a suite is for. The kept catalogue is only opened when nobody wrote it down.
pub(crate) fn describe(suite: &Suite, config: &Config, descriptions: &Descriptions) -> String {
    if let Some(own) = owner_description(&suite.spec, config, descriptions) {
        return summarise(&sanitize_description(&own).text, MAX_OWN_DESCRIPTION);
    }
    let written = suite_description(&suite.spec, config, descriptions, None);
    let described = if written == format!("{} tools", suite.spec.name) {
        let catalogue = suite.cached();
        let instructions = catalogue.as_ref().and_then(|catalogue| catalogue.instructions.as_deref());
        let said = instructions.map(str::trim).filter(|said| !said.is_empty()).map(str::to_owned);
        let said = said.or_else(|| named_tools(&suite.offered(catalogue.as_ref()?)));
        suite_description(&suite.spec, config, descriptions, said.as_deref())
    } else {
        written
    };
    summarise(&sanitize_description(&described).text, MAX_DESCRIPTION)
}

/// What is not shown as its owner or its child has it: a description or a list that is too long.
pub(crate) fn cuts(suite: &Suite, config: &Config, descriptions: &Descriptions) -> Vec<String> {
    let name = &suite.spec.name;
    let own = owner_description(&suite.spec, config, descriptions);
    let length = own.map_or(0, |own| own.split_whitespace().collect::<Vec<_>>().join(" ").chars().count());
    let description = (length > MAX_OWN_DESCRIPTION).then(|| {
        format!(
            "{name}: its description has {length} characters and {MAX_OWN_DESCRIPTION} are shown. Make it shorter."
        )
    });
    let list = suite.cached().and_then(|catalogue| catalogue.cut_note(name));
    description.into_iter().chain(list.map(|list| format!("{list}."))).collect()
}

/// What a child can do by the names of its tools, the first few of them.
fn named_tools(offered: &[Offered<'_>]) -> Option<String> {
    let names: Vec<&str> = offered.iter().map(|offered| offered.tool.name.as_str()).take(NAMED).collect();
    match (names.is_empty(), offered.len() - names.len()) {
        (true, _) => None,
        (false, 0) => Some(names.join(", ")),
        (false, more) => Some(format!("{} and {more} more", names.join(", "))),
    }
}
