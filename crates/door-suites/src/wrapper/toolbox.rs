//! Tools of the original child that the model may use.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::{sanitize_description, sanitize_description_value, suggest_similar};

use super::content::{self, ResultText};
use super::destructive::{EffectHints, is_destructive};
use super::model::ToolDefinition;
use crate::child::{Child, ChildError};
use crate::expose::ToolFilter;
use crate::host::Caller;

/// Maximum number of tools per request that OpenAI's API accepts.
const MOST_TOOLS: usize = 128;

/// Maximum length of a tool description that OpenAI's API accepts, in characters.
const DESCRIPTION_LIMIT: usize = 1024;

/// Maximum length of a tool name that OpenAI's API accepts, in characters.
const NAME_LIMIT: usize = 64;

/// Maximum size of a schema sent to a model, in bytes. A larger schema is replaced by a plain object.
const SCHEMA_LIMIT: usize = 32 << 10;

/// Tools available to the model, and tools that are withheld from it.
#[derive(Debug)]
pub(super) struct Toolbox {
    pub(super) definitions: Vec<ToolDefinition>,
    /// The child's own names of the tools, in the order of `definitions`.
    names: Vec<String>,
    pub(super) withheld: Vec<Withheld>,
}

/// A tool that is withheld from the model, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Withheld {
    pub(super) tool: String,
    pub(super) why: &'static str,
}

/// Policy that decides which tools the model may use.
pub(super) struct ToolPolicy<'a> {
    pub(super) exposed: &'a ToolFilter,
    pub(super) destructive: bool,
    /// Tools that no longer match their pins.
    pub(super) changed: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListedTool {
    name: String,
    description: Option<String>,
    input_schema: Option<Box<RawValue>>,
    annotations: Option<EffectHints>,
}

impl Toolbox {
    /// Splits a listing into available and withheld tools.
    ///
    /// Tools that the owner's filter excludes appear in neither group.
    pub(super) fn new(listed: &[Box<RawValue>], allowed: &ToolPolicy<'_>) -> Self {
        let (mut definitions, mut names, mut withheld) =
            (Vec::<ToolDefinition>::new(), Vec::new(), Vec::new());
        for raw in listed {
            let Ok(tool) = serde_json::from_str::<ListedTool>(raw.get()) else { continue };
            if !allowed.exposed.offers(&tool.name) {
                continue;
            }
            let effect = tool.annotations.unwrap_or_default();
            let reason = if allowed.changed.contains(&tool.name) {
                Some("it changed since its first use; a person must check it with `switchboard suite pins`")
            } else if !allowed.destructive && is_destructive(&tool.name, effect) {
                Some("it is destructive, and allowDestructive is not set")
            } else if definitions.len() == MOST_TOOLS {
                Some("the server has too many tools")
            } else {
                None
            };
            if let Some(reason) = reason {
                withheld.push(Withheld { tool: tool.name, why: reason });
                continue;
            }
            let description = sanitize_description(tool.description.as_deref().unwrap_or_default()).text;
            definitions.push(ToolDefinition {
                name: unique_name(&tool.name, &definitions),
                description: description.chars().take(DESCRIPTION_LIMIT).collect(),
                schema: schema(tool.input_schema),
            });
            names.push(tool.name);
        }
        Self { definitions, names, withheld }
    }

    /// Calls a tool by the name under which the model knows it.
    ///
    /// Failures become text for the model. Only a cancellation is returned as an error.
    pub(super) async fn call(
        &self,
        child: &Child,
        tool: &str,
        args: &RawValue,
        caller: &Caller,
    ) -> Result<ResultText, Cancelled> {
        let at = match self.position(tool) {
            Ok(at) => at,
            Err(text) => return Ok(ResultText { text, is_error: true }),
        };
        if !args.get().starts_with('{') {
            let text = "the arguments must be a JSON object; call the tool again with one".to_owned();
            return Ok(ResultText { text, is_error: true });
        }
        let name = serde_json::Value::from(self.names[at].as_str());
        let params = format!("{{\"name\":{name},\"arguments\":{}}}", args.get());
        let params = RawValue::from_string(params).ok();
        match child.request("tools/call", params, caller).await {
            Ok(result) => Ok(content::read(&result)),
            Err(ChildError::Cancelled) => Err(Cancelled),
            Err(error) => Ok(ResultText { text: error.to_string(), is_error: true }),
        }
    }

    /// Returns the index of a tool by the model's name for it, or an explanation for the model.
    fn position(&self, tool: &str) -> Result<usize, String> {
        if let Some(at) = self.definitions.iter().position(|definition| definition.name == tool) {
            return Ok(at);
        }
        if let Some(withheld) = self.withheld.iter().find(|withheld| withheld.tool == tool) {
            return Err(format!("the tool '{tool}' is not available: {}", withheld.why));
        }
        let near = suggest_similar(tool, self.definitions.iter().map(|definition| definition.name.as_str()));
        let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        Err(format!("there is no tool '{}'{hint}", tool.escape_debug()))
    }
}

/// Error: the caller cancelled the question.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cancelled;

/// Derives a name that every API accepts and that is unique among the tools.
fn unique_name(name: &str, taken: &[ToolDefinition]) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let safe: String = name.chars().map(|c| if is_fine(c) { c } else { '_' }).take(NAME_LIMIT).collect();
    let is_free = |name: &str| taken.iter().all(|definition| definition.name != name);
    let numbered = (2..).map(|number| {
        let mark = format!("_{number}");
        format!("{}{mark}", &safe[..safe.len().min(NAME_LIMIT - mark.len())])
    });
    std::iter::once(safe.clone()).chain(numbered).find(|name| is_free(name)).unwrap_or(safe)
}

/// Returns a schema that every API accepts, which must have type `object`.
fn schema(schema: Option<Box<RawValue>>) -> Box<RawValue> {
    #[derive(Deserialize)]
    struct Kind<'k> {
        #[serde(rename = "type")]
        kind: &'k str,
    }
    let is_object = |schema: &RawValue| {
        schema.get().len() <= SCHEMA_LIMIT
            && serde_json::from_str::<Kind<'_>>(schema.get()).is_ok_and(|kind| kind.kind == "object")
    };
    let any = || RawValue::from_string(r#"{"type":"object"}"#.to_owned()).unwrap_or_default();
    let Some(schema) = schema.filter(|schema| is_object(schema)) else { return any() };
    let mut value: serde_json::Value = serde_json::from_str(schema.get()).unwrap_or_default();
    if sanitize_description_value(&mut value) { switchboard_core::json::to_raw(&value) } else { schema }
}

#[cfg(test)]
#[path = "toolbox_tests.rs"]
mod tests;
