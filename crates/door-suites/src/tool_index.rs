//! Tool index: the tool list for hosts, and the routing target of each tool name.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use switchboard_core::json::to_raw;
use switchboard_core::sanitize_description;

use crate::config::Config;
use crate::descriptions::{Descriptions, owner_description, suite_description};
use crate::flat_tools;
use crate::introspect::OfferedTool;
use crate::rules::is_tool_name;
use crate::spec::Expose;
use crate::suite::Suite;
use crate::summary::summarise;

/// Name of the tool that searches all suites.
pub(crate) const SEARCH: &str = "switchboard_tools";
/// Maximum length of a generated suite description, in characters: about fifteen words, which state the suite's
/// purpose.
const MAX_DESCRIPTION: usize = 100;
/// Maximum length of an owner's description, in characters. More than a page is hardly intended for a tool list.
const MAX_OWN_DESCRIPTION: usize = 2_000;

/// Maximum number of tool names in a description that consists of tool names.
const NAMED: usize = 4;

/// Routing target of a tool name.
#[derive(Clone)]
pub(crate) enum Target {
    Suite(Arc<Suite>),
    /// A flat tool, with the name that the child itself uses for it.
    Flat(Arc<Suite>, String),
    Search,
}

/// The tool list, with the routing target of each name.
pub(crate) struct ToolIndex {
    pub(crate) tools: Vec<Box<RawValue>>,
    pub(crate) by_name: HashMap<String, Target>,
    pub(crate) issues: Vec<(Arc<Suite>, String)>,
    /// Value of the flat children's change counter when the index was built.
    pub(crate) changes: u64,
}

impl ToolIndex {
    /// Builds the index: suites by child name, then flat tools in each child's order, then the search tool.
    ///
    /// If two tools have the same name, the first in this order wins.
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
        // An untrusted flat child has no tools to list. Offer its suite tool instead, which explains how to trust the
        // child.
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
                "{}: its tool name {name} is taken. Set suites.{}.suiteName to another name.",
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
        // A tool keeps its bare name only if no other bare child has that name, so that a name never switches owner.
        let mut wanted: BTreeMap<&str, usize> = BTreeMap::new();
        for (suite, catalogue) in &flat {
            if suite.spec.expose == (Expose::Flat { bare: true }) {
                for offered in suite.offered(catalogue) {
                    *wanted.entry(offered.tool.name.as_str()).or_default() += 1;
                }
            }
        }
        for (suite, catalogue) in &flat {
            // Append the truncation note to a tool's description, since a model sees no other text about the list as a
            // whole.
            let mut cut = catalogue.truncation_note(&suite.spec.name);
            for offered in suite.offered(catalogue) {
                let tool = offered.tool;
                let is_bare = suite.spec.expose == (Expose::Flat { bare: true });
                let is_free = wanted.get(tool.name.as_str()) == Some(&1) && !taken.contains(&tool.name);
                let name = if is_bare && is_free && (is_tool_name(&tool.name) || tool.name.len() <= 64) {
                    tool.name.clone()
                } else {
                    flat_tools::prefixed_name(&suite.spec.name, &tool.name)
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
                        "{}: its tool {} is not listed, because the name {name} is taken.",
                        suite.spec.name, tool.name
                    );
                    self.issues.push(((*suite).clone(), message));
                    continue;
                }
                let listed = flat_tools::with_name(offered, &name);
                self.tools.push(match cut.take() {
                    Some(note) => flat_tools::add_note(&listed, &note),
                    None => listed,
                });
                self.by_name.insert(name, Target::Flat((*suite).clone(), tool.name.clone()));
            }
        }
    }
}

/// A tool of Switchboard itself.
///
/// The fields are serialized in the customary order, which is easier to read and costs fewer tokens.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Own<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a RawValue,
}

/// Input schema of a suite's tool, as published to hosts.
const SUITE_SCHEMA: &str = concat!(
    r#"{"type":"object","properties":{"action":{"type":"string","enum":["introspect","call"]},"#,
    r#""subtool":{"type":"string"},"args":{"type":"object"}},"required":["action"]}"#
);
/// Input schema of the search tool.
///
/// The tool also accepts `limit`, but declaring `limit` would cost seven tokens per conversation.
const SEARCH_SCHEMA: &str = r#"{"type":"object","properties":{"query":{"type":"string"}}}"#;

/// Builds the JSON of a suite's tool. Every character costs tokens in every conversation.
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
    to_raw(&Own { name, description, input_schema })
}

/// Returns a suite's description.
///
/// Loads the catalogue only if there is neither an owner's nor a built-in description.
pub(crate) fn describe(suite: &Suite, config: &Config, descriptions: &Descriptions) -> String {
    if let Some(own) = owner_description(&suite.spec, config, descriptions) {
        return summarise(&sanitize_description(&own).text, MAX_OWN_DESCRIPTION);
    }
    let written = suite_description(&suite.spec, config, descriptions, None);
    let described = if written == format!("{} tools", suite.spec.name) {
        let catalogue = suite.cached();
        let instructions = catalogue.as_ref().and_then(|catalogue| catalogue.instructions.as_deref());
        let text = instructions.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let text = text.or_else(|| named_tools(&suite.offered(catalogue.as_ref()?)));
        suite_description(&suite.spec, config, descriptions, text.as_deref())
    } else {
        written
    };
    summarise(&sanitize_description(&described).text, MAX_DESCRIPTION)
}

/// Returns a message for each truncation of the suite's description or tool list.
pub(crate) fn cuts(suite: &Suite, config: &Config, descriptions: &Descriptions) -> Vec<String> {
    let name = &suite.spec.name;
    let own = owner_description(&suite.spec, config, descriptions);
    let length = own.map_or(0, |own| own.split_whitespace().collect::<Vec<_>>().join(" ").chars().count());
    let description = (length > MAX_OWN_DESCRIPTION).then(|| {
        format!(
            "{name}: its description has {length} characters; only {MAX_OWN_DESCRIPTION} are shown. Shorten it."
        )
    });
    let list = suite.cached().and_then(|catalogue| catalogue.truncation_note(name));
    description.into_iter().chain(list.map(|list| format!("{list}."))).collect()
}

/// Describes a child by the names of its first few tools; returns `None` if there are no tools.
fn named_tools(offered: &[OfferedTool<'_>]) -> Option<String> {
    let names: Vec<&str> = offered.iter().map(|offered| offered.tool.name.as_str()).take(NAMED).collect();
    match (names.is_empty(), offered.len() - names.len()) {
        (true, _) => None,
        (false, 0) => Some(names.join(", ")),
        (false, more) => Some(format!("{} and {more} more", names.join(", "))),
    }
}
