//! serde errors in JSON terms, for people who write JSON and not Rust.

/// Rewords a serde error: "map" becomes "an object", "u64" becomes "a whole number, 0 or more".
pub fn reword_serde_error(error: &str) -> String {
    let Some((found, expected)) = error.split_once(", expected ") else { return error.to_owned() };
    let found = match found {
        "invalid type: map" => "invalid type: an object",
        "invalid type: sequence" => "invalid type: a list",
        found => found,
    };
    let (expected, position) = match expected.find(" at line ") {
        Some(at) => expected.split_at(at),
        None => (expected, ""),
    };
    let expected = match expected {
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "a sequence" => "a list",
        "a map" => "an object",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    };
    format!("{found}, expected {expected}{position}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_errors_use_json_terms() {
        for (error, reworded) in [
            (
                "invalid type: string \"5\", expected u64",
                "invalid type: string \"5\", expected a whole number, 0 or more",
            ),
            ("invalid type: sequence, expected struct Limits", "invalid type: a list, expected an object"),
            (
                "invalid type: map, expected a sequence at line 1 column 0",
                "invalid type: an object, expected a list at line 1 column 0",
            ),
            (
                "unknown variant `grpc`, expected one of `a`, `b`",
                "unknown variant `grpc`, expected one of `a`, `b`",
            ),
            ("EOF while parsing a value", "EOF while parsing a value"),
        ] {
            assert_eq!(reword_serde_error(error), reworded);
        }
    }
}
