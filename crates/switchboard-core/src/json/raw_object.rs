//! Raw JSON object: parsed at its top level only, so that members pass through unchanged.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A JSON object that preserves the order of its members and the bytes of their values.
///
/// A JSON map type would sort members and round large numbers, and the recipient has to get what the sender wrote.
#[derive(Debug, Clone, Default)]
pub struct RawObject<'a>(Vec<(Cow<'a, str>, Cow<'a, RawValue>)>);

impl<'a> RawObject<'a> {
    /// Parses an object. Returns `None` if the value is not an object.
    pub fn parse(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    /// Returns a member's value. The last of duplicate members wins, as in most JSON parsers.
    pub fn get(&self, key: &str) -> Option<&RawValue> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| &**value)
    }

    /// Returns a member's value if it is a string.
    pub fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?.get()).ok()
    }

    /// Sets a member's value in place, in each duplicate, or appends the member.
    pub fn set(&mut self, key: impl Into<Cow<'a, str>>, value: Box<RawValue>) {
        let key = key.into();
        let mut same = self.0.iter_mut().filter(|(name, _)| *name == key).peekable();
        if same.peek().is_none() {
            self.0.push((key, Cow::Owned(value)));
        } else {
            same.for_each(|(_, old)| *old = Cow::Owned(value.clone()));
        }
    }

    /// Removes a member and returns its value.
    pub fn remove(&mut self, key: &str) -> Option<Cow<'a, RawValue>> {
        self.0.extract_if(.., |(name, _)| name == key).last().map(|(_, value)| value)
    }

    /// Keeps only the members for which the condition is true.
    pub fn retain(&mut self, is_kept: impl Fn(&str, &RawValue) -> bool) {
        self.0.retain(|(name, value)| is_kept(name, value));
    }

    /// Returns an iterator over the members in their original order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns true if the object has no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Serializes the object.
    pub fn to_raw(&self) -> Box<RawValue> {
        to_raw(self)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = RawObject<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some((key, value)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((Cow::Owned(key), Cow::Borrowed(value)));
                }
                Ok(RawObject(members))
            }
        }

        deserializer.deserialize_map(Members)
    }
}

impl Serialize for RawObject<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// Serializes a value as raw JSON.
///
/// Returns `null` if the value cannot be serialized, such as a map with keys that are not strings.
pub fn to_raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// Deserializes an optional field as raw JSON. A field that is present as `null` becomes `Some`.
///
/// Use this function in `#[serde(borrow, default, deserialize_with = "…")]`.
pub fn deserialize_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
#[path = "raw_object_tests.rs"]
mod tests;
