//! Raw JSON objects: member order and value bytes are preserved.

use std::fmt;

use serde::de::{Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A JSON object that preserves member order and value bytes.
///
/// A JSON map type would sort members and round large numbers, and a host has to get what the child sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Object<'a>(pub(crate) Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    /// Parses an object; `None` if the value is not one.
    pub(crate) fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Returns a member's value. Of duplicates the last wins, as in every JSON parser.
    pub(crate) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| *value)
    }

    /// Returns a member's value if it is a string.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.get(key).and_then(|value| serde_json::from_str(value.get()).ok())
    }

    /// Replaces a member's value in place.
    pub(crate) fn set(&mut self, key: &str, value: &'a RawValue) {
        self.0.iter_mut().filter(|(name, _)| name == key).for_each(|(_, old)| *old = value);
    }

    /// Serializes the object.
    pub(crate) fn to_raw(&self) -> Box<RawValue> {
        raw(self)
    }
}

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Object(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Serializes a value. The values we build always serialize; `null` is an unreachable fallback.
pub(crate) fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
#[path = "raw_tests.rs"]
mod tests;
