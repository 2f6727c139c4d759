//! Canonical JSON, so that equal content always has the same hash.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::paths::hex;

/// Returns the SHA-256 of a value's canonical JSON, in hexadecimal.
pub(crate) fn hash(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    hex(&Sha256::digest(text))
}

/// Writes JSON with sorted keys and no spaces, independent of the map's own order.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<(&String, &Value)> = map.iter().collect();
            keys.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, value)) in keys.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write_canonical(value, out);
            }
            out.push('}');
        }
        Value::Array(values) => {
            out.push('[');
            for (at, value) in values.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_canonical(value, out);
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::hash;

    #[test]
    fn hash_ignores_key_order_only() {
        let one = hash(&json!({ "a": [1, { "b": 2, "c": 3 }], "d": "x" }));
        let same: serde_json::Value = serde_json::from_str(r#"{"d":"x", "a":[1,{"c":3,"b":2}]}"#).unwrap();
        assert_eq!(one, hash(&same));
        assert_eq!(one.len(), 64);
        for other in [json!({ "a": [{ "b": 2, "c": 3 }, 1], "d": "x" }), json!({ "d": "x" }), json!(null)] {
            assert_ne!(one, hash(&other));
        }
        // A string that looks like structure is still a string.
        assert_ne!(hash(&json!({ "a": "b\",\"c\":\"d" })), hash(&json!({ "a": "b", "c": "d" })));
    }
}
