//! Results of our own, in the shape of a `tools/call` result.

use serde_json::json;
use serde_json::value::RawValue;

use crate::raw::raw;

/// A text.
pub(crate) fn text(text: &str) -> Box<RawValue> {
    raw(&json!({ "content": [{ "type": "text", "text": text }] }))
}

/// A text that says why something was not done, for the model to act on.
pub(crate) fn refusal(text: &str) -> Box<RawValue> {
    raw(&json!({ "content": [{ "type": "text", "text": text }], "isError": true }))
}
