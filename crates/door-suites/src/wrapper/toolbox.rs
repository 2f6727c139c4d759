//! The tools of the original child, as far as a model may use them.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::{nearest, sanitize_description, sanitize_description_value};

use super::content::{self, Read};
use super::destructive::{Effect, is_destructive};
use super::model::Offer;
use crate::child::{Child, ChildError};
use crate::expose::Exposed;
use crate::host::Caller;

/// Most tools that a model is given: what OpenAI's API takes.
const MOST_TOOLS: usize = 128;

/// Most characters of a tool's description: what OpenAI's API takes.
const DESCRIPTION_LIMIT: usize = 1024;

/// Most characters of a tool's name: what OpenAI's API takes.
const NAME_LIMIT: usize = 64;

/// The largest schema that a model is given.
const SCHEMA_LIMIT: usize = 32 << 10;

/// The tools that a model has, and those that it has not.
#[derive(Debug)]
pub(super) struct Toolbox {
    pub(super) offers: Vec<Offer>,
    /// The child's own names, in the order of `offers`.
    names: Vec<String>,
    pub(super) withheld: Vec<Withheld>,
}

/// A tool that a model has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Withheld {
    pub(super) tool: String,
    pub(super) why: &'static str,
}

/// What a model may use.
pub(super) struct Allowed<'a> {
    pub(super) exposed: &'a Exposed,
    pub(super) destructive: bool,
    /// Tools that are no longer what they were when they were first used.
    pub(super) changed: BTreeSet<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listing {
    name: String,
    description: Option<String>,
    input_schema: Option<Box<RawValue>>,
    annotations: Option<Effect>,
}

impl Toolbox {
    /// Sorts what a child lists. Tools that its owner does not offer are not even mentioned.
    pub(super) fn new(listed: &[Box<RawValue>], allowed: &Allowed<'_>) -> Self {
        let (mut offers, mut names, mut withheld) = (Vec::<Offer>::new(), Vec::new(), Vec::new());
        for raw in listed {
            let Ok(tool) = serde_json::from_str::<Listing>(raw.get()) else { continue };
            if !allowed.exposed.offers(&tool.name) {
                continue;
            }
            let effect = tool.annotations.unwrap_or_default();
            let why = if allowed.changed.contains(&tool.name) {
                Some(
                    "it changed since it was first used; a person has to look, with `switchboard suite pins`",
                )
            } else if !allowed.destructive && is_destructive(&tool.name, effect) {
                Some("it may destroy something, and its owner has not set allowDestructive")
            } else if offers.len() == MOST_TOOLS {
                Some("there are too many tools")
            } else {
                None
            };
            if let Some(why) = why {
                withheld.push(Withheld { tool: tool.name, why });
                continue;
            }
            let description = sanitize_description(tool.description.as_deref().unwrap_or_default()).text;
            offers.push(Offer {
                name: free_name(&tool.name, &offers),
                description: description.chars().take(DESCRIPTION_LIMIT).collect(),
                schema: schema(tool.input_schema),
            });
            names.push(tool.name);
        }
        Self { offers, names, withheld }
    }

    /// Uses a tool by the name that the model knows. What goes wrong is for the model to read; only that nobody wants
    /// the answer any more is an error.
    pub(super) async fn call(
        &self,
        child: &Child,
        tool: &str,
        args: &RawValue,
        caller: &Caller,
    ) -> Result<Read, Cancelled> {
        let at = match self.position(tool) {
            Ok(at) => at,
            Err(text) => return Ok(Read { text, is_error: true }),
        };
        if !args.get().starts_with('{') {
            let text = "the arguments have to be a JSON object; call the tool again with one".to_owned();
            return Ok(Read { text, is_error: true });
        }
        let name = serde_json::Value::from(self.names[at].as_str());
        let params = format!("{{\"name\":{name},\"arguments\":{}}}", args.get());
        let params = RawValue::from_string(params).ok();
        match child.request("tools/call", params, caller).await {
            Ok(result) => Ok(content::read(&result)),
            Err(ChildError::Cancelled) => Err(Cancelled),
            Err(error) => Ok(Read { text: error.to_string(), is_error: true }),
        }
    }

    /// Where a tool is, or why it is not there.
    fn position(&self, tool: &str) -> Result<usize, String> {
        if let Some(at) = self.offers.iter().position(|offer| offer.name == tool) {
            return Ok(at);
        }
        if let Some(withheld) = self.withheld.iter().find(|withheld| withheld.tool == tool) {
            return Err(format!("the tool '{tool}' is not available: {}", withheld.why));
        }
        let near = nearest(tool, self.offers.iter().map(|offer| offer.name.as_str()));
        let hint = near.first().map(|near| format!("; did you mean '{near}'?")).unwrap_or_default();
        Err(format!("there is no tool '{}'{hint}", tool.escape_debug()))
    }
}

/// Nobody wants the answer any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Cancelled;

/// A name that every API takes and no tool before has.
fn free_name(name: &str, taken: &[Offer]) -> String {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let safe: String = name.chars().map(|c| if is_fine(c) { c } else { '_' }).take(NAME_LIMIT).collect();
    let is_free = |name: &str| taken.iter().all(|offer| offer.name != name);
    let numbered = (2..).map(|number| {
        let mark = format!("_{number}");
        format!("{}{mark}", &safe[..safe.len().min(NAME_LIMIT - mark.len())])
    });
    std::iter::once(safe.clone()).chain(numbered).find(|name| is_free(name)).unwrap_or(safe)
}

/// A schema that every API takes: that of an object.
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
    if sanitize_description_value(&mut value) { crate::raw::raw(&value) } else { schema }
}

#[cfg(test)]
#[path = "toolbox_tests.rs"]
mod tests;
