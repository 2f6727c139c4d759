//! Mirrors tool arguments into HTTP headers.
//!
//! Since 2026-07-28, a tool's schema marks such arguments with `x-mcp-header`. The annotations are collected from the
//! tool lists that pass through.

use std::collections::HashMap;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use switchboard_core::json::{RawObject, to_raw};

use super::name::encode;

const MARK: &str = "x-mcp-header";

/// Maximum schema depth that is searched for annotations. In practice, arguments are not nested deeper.
const DEPTH: usize = 16;

/// Header annotations of a server's tools, by tool name.
///
/// `None` marks a tool with invalid annotations. The revision requires clients to exclude such a tool.
#[derive(Default)]
pub(super) struct HeaderMirror(Mutex<HashMap<String, Option<Vec<MirroredArgument>>>>);

/// An argument mirrored into a header: the header name and the path of the argument.
struct MirroredArgument {
    header: HeaderName,
    path: Vec<String>,
}

impl HeaderMirror {
    /// Records the annotations of the listed tools. Returns the list without invalid tools if there are any, or else
    /// `None`.
    pub(super) fn record_tools(&self, list: &RawValue) -> Option<Box<RawValue>> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Tool {
            name: String,
            #[serde(default)]
            input_schema: Value,
        }
        // Few tools have annotations, and a substring search is much cheaper than parsing the list.
        if !list.get().contains(MARK) {
            return None;
        }
        let mut list = RawObject::parse(list)?;
        let tools: Vec<&RawValue> = serde_json::from_str(list.get("tools")?.get()).ok()?;
        let mut known = self.0.lock();
        let mut kept = Vec::with_capacity(tools.len());
        for raw_tool in &tools {
            let Ok(tool) = serde_json::from_str::<Tool>(raw_tool.get()) else { continue };
            let mut mirrored = Vec::new();
            let is_valid = search(&tool.input_schema, &mut Vec::new(), &mut mirrored);
            if is_valid {
                kept.push(*raw_tool);
            } else {
                tracing::warn!(tool = tool.name, "skipped a tool: its `{MARK}` is invalid");
            }
            known.insert(tool.name, is_valid.then_some(mirrored));
        }
        let has_less = kept.len() < tools.len();
        let kept = to_raw(&kept);
        has_less.then(|| {
            list.set("tools", kept);
            list.to_raw()
        })
    }

    /// Returns true if a tool's header annotations are invalid.
    pub(super) fn is_invalid(&self, tool: &str) -> bool {
        matches!(self.0.lock().get(tool), Some(None))
    }

    /// Returns the headers that mirror the arguments of a call.
    pub(super) fn headers(&self, params: Option<&RawValue>) -> HeaderMap {
        #[derive(Deserialize)]
        struct Call {
            name: String,
            #[serde(default)]
            arguments: Value,
        }
        let mut headers = HeaderMap::new();
        let known = self.0.lock();
        if known.is_empty() {
            return headers;
        }
        let Some(Ok(call)) = params.map(|params| serde_json::from_str::<Call>(params.get())) else {
            return headers;
        };
        for MirroredArgument { header, path } in known.get(&call.name).into_iter().flatten().flatten() {
            let value = path.iter().try_fold(&call.arguments, |value, key| value.get(key));
            let text = match value {
                Some(Value::String(text)) => encode(text),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
                _ => continue,
            };
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(header.clone(), value);
            }
        }
        headers
    }
}

/// Collects the annotations that are reachable only through `properties`; all others are ignored.
///
/// Returns false if an annotation is not a valid header name, occurs twice, or is on a type that a header cannot carry.
fn search(schema: &Value, path: &mut Vec<String>, found: &mut Vec<MirroredArgument>) -> bool {
    let Some(Value::Object(properties)) = schema.get("properties") else { return true };
    if path.len() == DEPTH {
        return true;
    }
    properties.iter().all(|(name, property)| {
        path.push(name.clone());
        let is_valid = match property.get(MARK) {
            None => true,
            Some(mark) => header(mark, property).is_some_and(|header| {
                let is_new = found.iter().all(|mirrored| mirrored.header != header);
                found.push(MirroredArgument { header, path: path.clone() });
                is_new
            }),
        } && search(property, path, found);
        path.pop();
        is_valid
    })
}

fn header(mark: &Value, property: &Value) -> Option<HeaderName> {
    let is_carried = matches!(property.get("type")?.as_str()?, "string" | "integer" | "boolean");
    let mark = mark.as_str().filter(|mark| is_carried && !mark.is_empty())?;
    HeaderName::from_bytes(format!("mcp-param-{mark}").as_bytes()).ok()
}

#[cfg(test)]
#[path = "mirror_tests.rs"]
mod tests;
