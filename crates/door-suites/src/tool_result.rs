//! Tool results written by Switchboard itself, in the format of `tools/call`.

use serde_json::json;
use serde_json::value::RawValue;
use switchboard_core::json::to_raw;

/// Builds a result that consists of one text.
pub(crate) fn text(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

/// Builds an error result that tells the model why a call was refused.
pub(crate) fn refusal(text: &str) -> Box<RawValue> {
    to_raw(&json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
}
