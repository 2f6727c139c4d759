//! Canonical JSON (RFC 8785): one text per value, for signatures and hashes.

use serde_json::{Number, Value};

/// Largest integer that every JSON reader represents exactly: 2^53 - 1.
const SAFE_INTEGER: u64 = (1 << 53) - 1;

/// `SAFE_INTEGER` as a double.
const LARGEST_INTEGER: f64 = 9_007_199_254_740_991.0;

/// Magnitude from which on the canonical form of a number has an exponent.
const FIRST_EXPONENT: f64 = 1e21;

/// Returns the canonical form of a value, or `None` if the value contains a number without an exact form.
pub fn canonicalize(value: &Value) -> Option<Vec<u8>> {
    let mut text = String::new();
    write(value, &exact_number, &mut text)?;
    Some(text.into_bytes())
}

/// Returns the canonical form of a value, except for numbers, which keep the text of `serde_json`.
///
/// Every value has such a form, and different values have different forms. It suits local hashes. A signature needs
/// [`canonicalize`], because other programs write numbers in their own way.
pub fn canonicalize_any(value: &Value) -> Vec<u8> {
    let mut text = String::new();
    let written = write(value, &|number| Some(number.to_string()), &mut text);
    debug_assert!(written.is_some(), "every number has a text");
    text.into_bytes()
}

/// Writes a value without spaces, with keys in the order of their UTF-16 code units.
fn write(value: &Value, number_text: &impl Fn(&Number) -> Option<String>, out: &mut String) -> Option<()> {
    match value {
        Value::Object(object) => {
            let mut members: Vec<(&String, &Value)> = object.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (at, (key, member)) in members.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(key, out);
                out.push(':');
                write(member, number_text, out)?;
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, number_text, out)?;
            }
            out.push(']');
        }
        Value::Number(number) => out.push_str(&number_text(number)?),
        Value::String(text) => write_string(text, out),
        Value::Bool(bool) => out.push_str(if *bool { "true" } else { "false" }),
        Value::Null => out.push_str("null"),
    }
    Some(())
}

/// Writes a string with the escapes of RFC 8785, which are those of `serde_json`.
fn write_string(text: &str, out: &mut String) {
    // Serializing a string to memory cannot fail.
    out.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Returns the RFC 8785 text of a number, which is that of ECMAScript.
///
/// Returns `None` if a reader could parse another number from the text.
fn exact_number(number: &Number) -> Option<String> {
    is_exact(number).then(|| serde_json_canonicalizer::to_string(number).ok()).flatten()
}

/// Returns true if a number survives the conversion to a double, from which the canonical form is made.
fn is_exact(number: &Number) -> bool {
    match (number.as_i64(), number.as_u64()) {
        (_, Some(number)) => number <= SAFE_INTEGER,
        (Some(number), None) => number.unsigned_abs() <= SAFE_INTEGER,
        // Between these bounds the canonical form is an integer with so many digits that not every reader preserves
        // them.
        (None, None) => number.as_f64().is_some_and(|number| {
            let size = number.abs();
            number.is_finite() && (size <= LARGEST_INTEGER || size >= FIRST_EXPONENT)
        }),
    }
}

#[cfg(test)]
#[path = "canonical_tests.rs"]
mod tests;
