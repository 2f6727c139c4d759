//! A child's tool, parsed only as far as is needed for offering it.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::{sanitize_description, sanitize_description_value};

use crate::expose;
use crate::schema::{Checker, MAX_SCHEMA, strip_boilerplate};
use crate::signature::{argument_names, signature};

/// A child's tool. Keeps the raw JSON, from which display data is parsed on demand.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) raw: Box<RawValue>,
    pub(crate) hints: Hints,
    /// Validator, compiled at the first call, since most tools are never called.
    checker: OnceLock<Checker>,
}

/// The child's own hints about a tool's effect. The hints are untrusted, so they are only informative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hints {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
}

/// Sanitized data of a tool for display.
#[derive(Debug, Default)]
pub(crate) struct DisplayedTool {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Schema,
    pub(crate) output_schema: Option<Schema>,
}

/// Input schema of a tool, for display.
#[derive(Debug)]
pub(crate) enum Schema {
    Inline(Value),
    /// The schema is too large for a model. Carries the size in bytes.
    TooLarge(usize),
}

impl Tool {
    /// Parses a tool; returns `None` if the tool has no valid name.
    pub(crate) fn read(raw: Box<RawValue>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Head {
            name: String,
            #[serde(default)]
            annotations: Option<Hints>,
        }
        // Fallback without annotations, because malformed annotations must not hide the tool.
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let (name, hints) = match serde_json::from_str::<Head>(raw.get()) {
            Ok(head) => (head.name, head.annotations.unwrap_or_default()),
            Err(_) => (serde_json::from_str::<Named>(raw.get()).ok()?.name, Hints::default()),
        };
        expose::is_valid_tool_name(&name).then(|| Self { name, raw, hints, checker: OnceLock::new() })
    }

    /// Returns the sanitized display data. The flag is true if sanitizing removed anything.
    pub(crate) fn display(&self) -> (DisplayedTool, bool) {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Read<'a> {
            title: Option<String>,
            description: Option<String>,
            #[serde(borrow)]
            input_schema: Option<&'a RawValue>,
            #[serde(borrow)]
            output_schema: Option<&'a RawValue>,
        }
        let mut read: Read<'_> = serde_json::from_str(self.raw.get()).unwrap_or_default();
        let mut is_flagged = false;
        for text in [&mut read.title, &mut read.description].into_iter().flatten() {
            let sanitized = sanitize_description(text);
            is_flagged |= !sanitized.flags.is_empty();
            *text = sanitized.text;
        }
        let mut schema = |raw: &RawValue| {
            if raw.get().len() > MAX_SCHEMA {
                return Schema::TooLarge(raw.get().len());
            }
            let mut value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
            is_flagged |= sanitize_description_value(&mut value);
            strip_boilerplate(&mut value);
            Schema::Inline(value)
        };
        let input_schema = read.input_schema.map(&mut schema).unwrap_or_default();
        let output_schema = read.output_schema.map(&mut schema);
        (
            DisplayedTool { title: read.title, description: read.description, input_schema, output_schema },
            is_flagged,
        )
    }

    /// Returns the validator for the tool's arguments; compiles it at the first use.
    pub(crate) fn checker(&self) -> &Checker {
        self.checker.get_or_init(|| {
            #[derive(Deserialize)]
            #[serde(rename_all = "camelCase")]
            struct Head<'a> {
                #[serde(borrow)]
                input_schema: Option<&'a RawValue>,
            }
            let schema = serde_json::from_str::<Head<'_>>(self.raw.get()).ok();
            Checker::new(schema.and_then(|schema| schema.input_schema))
        })
    }
}

impl Default for Schema {
    fn default() -> Self {
        Self::Inline(Value::Null)
    }
}

impl Schema {
    /// Renders the tool's arguments as a one-line signature.
    pub(crate) fn signature(&self) -> String {
        match self {
            Self::Inline(schema) => signature(schema),
            Self::TooLarge(_) => "(…)".to_owned(),
        }
    }

    /// Returns the names of the tool's arguments.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Inline(schema) => argument_names(schema),
            Self::TooLarge(_) => Vec::new(),
        }
    }

    /// Converts the schema to JSON; a schema that is too large becomes a note.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Inline(schema) => schema,
            Self::TooLarge(bytes) => json!({ "$comment": format!("{bytes} bytes, too large to be shown") }),
        }
    }
}

impl Hints {
    /// Returns true if the child declares the tool read-only.
    pub(crate) fn is_read_only(self) -> bool {
        self.read_only_hint == Some(true)
    }

    /// Returns a short label of the tool's effect, for models.
    pub(crate) fn label(self) -> &'static str {
        match (self.read_only_hint, self.destructive_hint) {
            (Some(true), _) => " [read-only]",
            (_, Some(true)) => " [destructive]",
            _ => "",
        }
    }
}
