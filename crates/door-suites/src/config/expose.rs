//! The setting `suites.<name>.expose`, which is a string or an object.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, de};

/// Which tools of a server are offered, and how.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExposeSettings {
    /// One suite tool, or each tool separately.
    pub mode: ExposeMode,
    /// True if flat tools keep their own names.
    pub bare: bool,
    /// Names or globs of offered tools; `None` means all.
    pub allow: Option<Vec<String>>,
    /// Names or globs of tools that are never offered, overriding `allow`.
    pub deny: Vec<String>,
}

/// How tools are exposed: one suite tool, or each tool separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExposeMode {
    /// One suite tool.
    #[default]
    Suite,
    /// Each tool separately, as `<name>__<tool>`.
    Flat,
}

/// Which tools of a server are offered, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct ExposeObject {
    /// One suite tool, or each tool separately
    mode: ExposeMode,
    /// Whether separately offered tools keep their own names
    bare: bool,
    /// Names or globs of offered tools; all by default
    allow: Option<Vec<String>>,
    /// Names or globs of tools that are never offered, overriding `allow`
    deny: Vec<String>,
}

impl From<ExposeObject> for ExposeSettings {
    fn from(object: ExposeObject) -> Self {
        let ExposeObject { mode, bare, allow, deny } = object;
        Self { mode, bare, allow, deny }
    }
}

impl<'de> Deserialize<'de> for ExposeSettings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WordOrObject)
    }
}

struct WordOrObject;

impl<'de> Visitor<'de> for WordOrObject {
    type Value = ExposeSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"suite\", \"flat\" or an object with 'mode', 'bare', 'allow' and 'deny'")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<ExposeSettings, E> {
        let mode = ExposeMode::deserialize(de::value::StrDeserializer::new(word))?;
        Ok(ExposeSettings { mode, ..ExposeSettings::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ExposeSettings, A::Error> {
        ExposeObject::deserialize(MapAccessDeserializer::new(map)).map(Into::into)
    }
}

impl JsonSchema for ExposeSettings {
    fn schema_name() -> Cow<'static, str> {
        "Expose".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (word, object) =
            (generator.subschema_for::<ExposeMode>(), generator.subschema_for::<ExposeObject>());
        schemars::json_schema!({ "anyOf": [word, object] })
    }
}
