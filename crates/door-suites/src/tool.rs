//! A tool of a child, as far as it has to be understood to be offered.

use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::expose;
use crate::neutral::neutral;
use crate::schema::Checker;

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
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Shown {
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) input_schema: Value,
    pub(crate) output_schema: Option<Value>,
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

    /// What is shown of it, with the description made harmless.
    pub(crate) fn shown(&self) -> (Shown, bool) {
        let mut shown: Shown = serde_json::from_str(self.raw.get()).unwrap_or_default();
        let mut is_flagged = false;
        if let Some(description) = &mut shown.description {
            let harmless = neutral(description);
            is_flagged = !harmless.flags.is_empty();
            *description = harmless.text;
        }
        (shown, is_flagged)
    }

    /// What its arguments have to be.
    pub(crate) fn checker(&self) -> &Checker {
        self.checker.get_or_init(|| {
            #[derive(Deserialize)]
            #[serde(rename_all = "camelCase")]
            struct Schema<'a> {
                #[serde(borrow)]
                input_schema: Option<&'a RawValue>,
            }
            let schema = serde_json::from_str::<Schema<'_>>(self.raw.get()).ok();
            Checker::new(schema.and_then(|schema| schema.input_schema))
        })
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
