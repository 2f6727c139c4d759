//! Strict JSON parser that rejects duplicate keys and enforces a protocol's limits.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Nesting depth at which the parser of `serde_json` gives up, before the stack is exhausted.
pub const PARSER_DEPTH: u32 = 128;

/// Limits that a protocol sets on JSON, in addition to unique keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrictRules {
    /// Maximum nesting depth, at most [`PARSER_DEPTH`].
    pub max_depth: u32,
    /// True if strings may contain U+0000, which some readers take for the end of the string.
    pub allows_nul: bool,
}

/// Parses JSON, and rejects texts that two parsers could read differently.
///
/// Most parsers use the last of duplicate keys and some use the first, so a check could see another value than the
/// recipient.
pub fn parse_strict(bytes: &[u8], rules: StrictRules) -> Result<Value, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { rules, depth: 0 }.deserialize(&mut parser)?;
    parser.end()?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict {
    rules: StrictRules,
    depth: u32,
}

impl Strict {
    /// Returns the parser for values one level deeper. Fails at the maximum depth.
    fn nested<E: Error>(self) -> Result<Self, E> {
        let Self { rules, depth } = self;
        if depth >= rules.max_depth {
            return Err(E::custom(format_args!("nested deeper than {} levels", rules.max_depth)));
        }
        Ok(Self { rules, depth: depth + 1 })
    }

    fn check_text<E: Error>(self, text: String) -> Result<String, E> {
        if !self.rules.allows_nul && text.contains('\0') {
            return Err(E::custom("a NUL character is not allowed"));
        }
        Ok(text)
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.visit_string(value.to_owned())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.check_text(value).map(Value::String)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let nested = self.nested()?;
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(nested)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let nested = self.nested()?;
        let mut object = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let key = self.check_text(key)?;
            if object.contains_key(&key) {
                return Err(A::Error::custom(format_args!("the key '{}' appears twice", key.escape_debug())));
            }
            let value = map.next_value_seed(nested)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
#[path = "strict_tests.rs"]
mod tests;
