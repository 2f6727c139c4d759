//! Hash of JSON content, used for tool pins and for decisions about children.

use serde_json::Value;
use sha2::{Digest, Sha256};
use switchboard_core::json::canonicalize_any;

use crate::paths::hex;

/// Returns the SHA-256 of a value's canonical JSON, in hexadecimal. The order of object members does not matter.
pub(crate) fn hash_content(value: &Value) -> String {
    hex(&Sha256::digest(canonicalize_any(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::hash_content;

    #[test]
    fn hash_ignores_key_order_only() {
        let one = hash_content(&json!({ "a": [1, { "b": 2, "c": 3 }], "d": "x" }));
        let same: serde_json::Value = serde_json::from_str(r#"{"d":"x", "a":[1,{"c":3,"b":2}]}"#).unwrap();
        assert_eq!(one, hash_content(&same));
        // Hashes are stored in users' files, so the hash of a value must never change.
        assert_eq!(one, "0d3f0063d40a842ed28068923e9c67089d49164ff4afdab02479da1d6d3ec495");
        for other in [json!({ "a": [{ "b": 2, "c": 3 }, 1], "d": "x" }), json!({ "d": "x" }), json!(null)] {
            assert_ne!(one, hash_content(&other));
        }
    }
}
