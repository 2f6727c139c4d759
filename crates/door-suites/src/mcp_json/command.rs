//! The setting `command`, which is a string or an object with arguments and environment variables.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize, de};

/// A program with its arguments and variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct CommandLine {
    /// The program.
    pub cmd: String,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

/// A program with its arguments and variables.
#[derive(Deserialize, JsonSchema)]
struct CommandObject {
    /// Program
    cmd: String,
    /// Arguments
    #[serde(default)]
    args: Vec<String>,
    /// Environment variables
    #[serde(default)]
    env: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for CommandLine {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrObject)
    }
}

struct TextOrObject;

impl<'de> Visitor<'de> for TextOrObject {
    type Value = CommandLine;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a program, or an object with 'cmd', 'args' and 'env'")
    }

    fn visit_str<E: de::Error>(self, cmd: &str) -> Result<CommandLine, E> {
        Ok(CommandLine { cmd: cmd.to_owned(), ..CommandLine::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<CommandLine, A::Error> {
        let CommandObject { cmd, args, env } = CommandObject::deserialize(MapAccessDeserializer::new(map))?;
        Ok(CommandLine { cmd, args, env })
    }
}

impl JsonSchema for CommandLine {
    fn schema_name() -> Cow<'static, str> {
        "Command".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let object = generator.subschema_for::<CommandObject>();
        schemars::json_schema!({ "anyOf": [{ "type": "string" }, object] })
    }
}
