//! Canonical JSON (RFC 8785), the input of the envelope signature.

use serde_json::Value;

/// The largest integer that every JSON reader represents exactly: 2^53 - 1.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// `SAFE_INTEGER` as a double.
const LARGEST_INTEGER: f64 = 9_007_199_254_740_991.0;

/// From this value on, the canonical form of a number has an exponent.
const FIRST_EXPONENT: f64 = 1e21;

/// Returns the canonical form of a value; `None` if it contains a number without an exact form.
pub(crate) fn canonicalize(value: &Value) -> Option<Vec<u8>> {
    if !is_exact(value) {
        return None;
    }
    serde_json_canonicalizer::to_vec(value).ok()
}

/// True if every number survives the conversion to a double, which the canonical form is made from.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (_, Some(number)) => number <= SAFE_INTEGER,
            (Some(number), None) => number.unsigned_abs() <= SAFE_INTEGER,
            // Between these bounds the canonical form is an integer, whose digits not every reader preserves.
            (None, None) => number.as_f64().is_some_and(|number| {
                let size = number.abs();
                number.is_finite() && (size <= LARGEST_INTEGER || size >= FIRST_EXPONENT)
            }),
        },
        Value::Array(items) => items.iter().all(is_exact),
        Value::Object(object) => object.values().all(is_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

#[cfg(test)]
#[path = "canonical_json_tests.rs"]
mod tests;
