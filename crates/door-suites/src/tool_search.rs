//! Search for tools across all suites, by query or by a mistyped name.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use serde_json::value::RawValue;
use switchboard_core::json::RawObject;
use switchboard_core::suggest_similar;

use crate::arguments::{self, call_example};
use crate::blocking::run_blocking;
use crate::catalogue::Catalogue;
use crate::host::Caller;
use crate::introspect::render_line;
use crate::ranking::rank_tools;
use crate::suite::Suite;
use crate::suites::{Suites, WARM_CONCURRENCY};
use crate::summary::summarise;
use crate::tool_index::describe;
use crate::tool_result;

/// Default number of tools that a search returns; `MAX_FOUND` is the maximum.
const FOUND: usize = 8;
const MAX_FOUND: usize = 50;

impl Suites {
    /// Searches the tools of all suites. Without a query, lists the suites.
    pub(crate) async fn search(&self, arguments: Option<&RawValue>, caller: &Caller) -> Box<RawValue> {
        let table = self.table();
        let question = arguments
            .and_then(RawObject::parse)
            .map(|object| arguments::parse_query(&object))
            .unwrap_or_default();
        let suites: Vec<_> = table.suites.iter().filter(|suite| !suite.is_flat()).cloned().collect();
        let Some(query) = &question.query else {
            let lines: Vec<String> = suites
                .iter()
                .map(|suite| {
                    format!(
                        "{} — {}",
                        suite.rules.tool_name,
                        describe(suite, &table.config, &table.descriptions)
                    )
                })
                .collect();
            return tool_result::text(&lines.join("\n"));
        };
        let known: Vec<_> = stream::iter(suites.clone())
            .map(|suite| async move { suite.catalogue_for_search(caller).await })
            .buffered(WARM_CONCURRENCY)
            .collect()
            .await;
        let limit = question.limit.unwrap_or(FOUND).clamp(1, MAX_FOUND);
        let query = query.clone();
        let found = run_blocking(move || find_tools(&suites, &known, &query, limit)).await;
        let result = tool_result::text(&found);
        self.inner.usage.count_introspection(result.get().len());
        result
    }

    /// Suggests the right call to a model that called an unknown tool.
    ///
    /// The model may have mistyped a suite's name, or called a server's tool directly. Returns `None` if no suite
    /// matches.
    pub fn suggest_tool(&self, tool: &str) -> Option<String> {
        let top = self.tool_index();
        let missing = format!("There is no tool '{}'", tool.escape_debug());
        // Other proxies name their tools `server__tool`.
        let subtool = tool.rsplit_once("__").map_or(tool, |(_, subtool)| subtool);
        for suite in
            self.table().suites.iter().filter(|suite| top.by_name.contains_key(&suite.rules.tool_name))
        {
            let Some(catalogue) = suite.cached() else { continue };
            if suite.get_offered(&catalogue, subtool).is_some() {
                let name = &suite.rules.tool_name;
                return Some(format!(
                    "{missing}. It is a tool of {name}: call {name} with {}.",
                    call_example(subtool)
                ));
            }
        }
        let reserved = self.inner.reserved.lock();
        let known = reserved.iter().chain(top.by_name.keys()).map(String::as_str);
        let near = suggest_similar(tool, known).into_iter().next()?;
        top.by_name.contains_key(&near).then(|| format!("{missing}. Did you mean '{near}'?"))
    }
}

/// Renders the tools of all suites that match a query, one per line.
///
/// Suites that could not be searched are listed as well.
fn find_tools(
    suites: &[Arc<Suite>],
    known: &[Result<Arc<Catalogue>, String>],
    query: &str,
    limit: usize,
) -> String {
    let tools: Vec<_> = suites
        .iter()
        .zip(known)
        .filter_map(|(suite, known)| Some((suite, known.as_ref().ok()?)))
        .flat_map(|(suite, catalogue)| {
            suite.offered(catalogue).into_iter().map(move |offered| (suite, offered))
        })
        .collect();
    let positions = rank_tools(query, tools.iter().map(|(_, offered)| offered.tool));
    let mut lines: Vec<String> = positions
        .iter()
        .take(limit)
        .map(|&position| {
            let (suite, offered) = &tools[position];
            format!(
                "{}: {}",
                suite.rules.tool_name,
                render_line(*offered, suite.rules.style.summary_max_chars)
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("No tool matches \"{}\".", summarise(query, 80)));
    }
    let missing = suites.iter().zip(known).filter_map(|(suite, known)| Some((suite, known.as_ref().err()?)));
    lines.extend(
        missing.map(|(suite, reason)| format!("({} was not searched: {reason})", suite.rules.tool_name)),
    );
    lines.join("\n")
}
