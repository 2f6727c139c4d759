//! A tool of a child, as far as it has to be understood to be offered.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::{sanitize_description, sanitize_description_value};

use crate::expose;
use crate::schema::{Checker, MAX_SCHEMA, tidy};
use crate::signature::{argument_names, signature};

/// A tool of a child. What the child said is kept as it was said; all else is read out of it when needed.
#[derive(Debug)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) raw: Box<RawValue>,
    pub(crate) hints: Hints,
    /// Made when the tool is called for the first time; most never are.
    checker: OnceLock<Checker>,
}

/// What a child says about the effect of a tool. It is the child's word, so it only ever informs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Hints {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
}

/// What is read out of a tool to show it.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Schema,
    pub(crate) output_schema: Option<Schema>,
}

/// A schema of a tool, to be shown.
#[derive(Debug)]
pub(crate) enum Schema {
    Here(Value),
    /// It has so many bytes, which is more than a model could make use of.
    TooLarge(usize),
}

impl Tool {
    /// Reads a tool; `None` when it has no name that could be called.
    pub(crate) fn read(raw: Box<RawValue>) -> Option<Self> {
        #[derive(Deserialize)]
        struct Head {
            name: String,
            #[serde(default)]
            annotations: Option<Hints>,
        }
        // Annotations of another shape are no reason to lose the tool.
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        let (name, hints) = match serde_json::from_str::<Head>(raw.get()) {
            Ok(head) => (head.name, head.annotations.unwrap_or_default()),
            Err(_) => (serde_json::from_str::<Named>(raw.get()).ok()?.name, Hints::default()),
        };
        expose::is_name(&name).then(|| Self { name, raw, hints, checker: OnceLock::new() })
    }

    /// What is shown of it, with all that the child wrote made harmless, and whether it had to be.
    pub(crate) fn shown(&self) -> (Shown, bool) {
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
            tidy(&mut value);
            Schema::Here(value)
        };
        let input_schema = read.input_schema.map(&mut schema).unwrap_or_default();
        let output_schema = read.output_schema.map(&mut schema);
        (Shown { title: read.title, description: read.description, input_schema, output_schema }, is_flagged)
    }

    /// What its arguments have to be.
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
        Self::Here(Value::Null)
    }
}

impl Schema {
    /// What a tool takes, in one line.
    pub(crate) fn signature(&self) -> String {
        match self {
            Self::Here(schema) => signature(schema),
            Self::TooLarge(_) => "(…)".to_owned(),
        }
    }

    /// The names of the arguments.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        match self {
            Self::Here(schema) => argument_names(schema),
            Self::TooLarge(_) => Vec::new(),
        }
    }

    /// As JSON.
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Here(schema) => schema,
            Self::TooLarge(bytes) => json!({ "$comment": format!("{bytes} bytes, too large to be shown") }),
        }
    }
}

impl Hints {
    /// Whether the child says that the tool changes nothing.
    pub(crate) fn is_read_only(self) -> bool {
        self.read_only_hint == Some(true)
    }

    /// What a model is told, in as few letters as it takes.
    pub(crate) fn mark(self) -> &'static str {
        match (self.read_only_hint, self.destructive_hint) {
            (Some(true), _) => " [read-only]",
            (_, Some(true)) => " [destructive]",
            _ => "",
        }
    }
}
