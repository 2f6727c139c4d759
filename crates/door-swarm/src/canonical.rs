//! Canonical JSON, RFC 8785, for what a whole envelope's signature is made over.

use serde_json::Value;

/// The largest integer that every reader of JSON takes for the same number: 2^53 - 1.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The same as a double.
const LARGEST_INTEGER: f64 = 9_007_199_254_740_991.0;

/// From here on the canonical form of a number has an exponent.
const FIRST_EXPONENT: f64 = 1e21;

/// The canonical form of a value; `None` where a number in it has no exact one.
pub(crate) fn canonical(value: &Value) -> Option<Vec<u8>> {
    if !is_exact(value) {
        return None;
    }
    serde_json_canonicalizer::to_vec(value).ok()
}

/// Whether all numbers survive the way through a double, which is what the canonical form is made of.
fn is_exact(value: &Value) -> bool {
    match value {
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (_, Some(number)) => number <= SAFE_INTEGER,
            (Some(number), None) => number.unsigned_abs() <= SAFE_INTEGER,
            // Between the two the canonical form is that of an integer, of which not every reader keeps all digits.
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
#[path = "canonical_tests.rs"]
mod tests;
