use proptest::prelude::*;

use super::super::test_values::values;
use super::*;

const STRICTEST: StrictRules = StrictRules { max_depth: 32, allows_nul: false };
const LOOSEST: StrictRules = StrictRules { max_depth: PARSER_DEPTH, allows_nul: true };

fn error(text: &str, rules: StrictRules) -> String {
    parse_strict(text.as_bytes(), rules).unwrap_err().to_string()
}

#[test]
fn ambiguous_json_is_refused() {
    for (text, problem) in [
        (r#"{"a":1,"a":2}"#, "the key 'a' appears twice"),
        (r#"{"a":1,"\u0061":2}"#, "the key 'a' appears twice"),
        (r#"{"m":[{"x":{"k":1,"k":1}}]}"#, "the key 'k' appears twice"),
        ("{} {}", "trailing"),
        ("{\"a\":1", "EOF"),
        ("\"\\ud800\"", ""),
        ("1e999", "number out of range"),
    ] {
        for rules in [STRICTEST, LOOSEST] {
            let error = error(text, rules);
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
    assert!(parse_strict(b"\"\xff\"", LOOSEST).is_err());
}

#[test]
fn nul_is_refused_by_rule() {
    for text in [r#"{"a":"x\u0000y"}"#, r#"{"a\u0000":1}"#] {
        assert!(error(text, STRICTEST).contains("a NUL character is not allowed"));
        assert_eq!(
            parse_strict(text.as_bytes(), LOOSEST).unwrap(),
            serde_json::from_str::<Value>(text).unwrap()
        );
    }
}

#[test]
fn depth_is_limited_by_rule() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(parse_strict(nested(32).as_bytes(), STRICTEST).is_ok());
    assert!(error(&nested(33), STRICTEST).contains("nested deeper than 32 levels"));
    assert!(error(&format!("{{\"a\":{}}}", nested(32)), STRICTEST).contains("nested deeper"));
    assert!(parse_strict(nested(127).as_bytes(), LOOSEST).is_ok());
    // The parser's own limit, which protects the stack.
    assert!(error(&nested(128), LOOSEST).contains("recursion limit exceeded"));
    assert!(error(&"[".repeat(100_000), LOOSEST).contains("recursion limit exceeded"));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\[\\]{}:,\"a0\\\\u ]{0,60}") {
        for bytes in [&bytes, text.as_bytes()] {
            let lenient = serde_json::from_slice::<Value>(bytes);
            for rules in [STRICTEST, LOOSEST] {
                // Strictly parsed text means the same to a lenient parser.
                if let Ok(value) = parse_strict(bytes, rules) {
                    prop_assert_eq!(&value, lenient.as_ref().unwrap());
                }
            }
        }
    }

    #[test]
    fn serde_output_round_trips(value in values()) {
        for text in [value.to_string(), format!("{value:#}")] {
            prop_assert_eq!(parse_strict(text.as_bytes(), LOOSEST).unwrap(), value.clone());
        }
        let has_nul = value.to_string().contains("\\u0000");
        prop_assert_eq!(parse_strict(value.to_string().as_bytes(), STRICTEST).is_err(), has_nul);
    }

    #[test]
    fn duplicate_key_is_refused_at_any_depth(
        key in "[a-z\"é]{0,4}", values in proptest::collection::vec(values(), 3), path in proptest::collection::vec(any::<bool>(), 0..20),
    ) {
        let [first, between, second] = values.as_slice() else { unreachable!() };
        let name = Value::from(key.as_str());
        let mut text = format!("{{{name}:{first},\"other\":{between},{name}:{second}}}");
        for is_array in path {
            text = if is_array { format!("[{between},{text}]") } else { format!("{{\"in\":{text}}}") };
        }
        prop_assert!(serde_json::from_str::<Value>(&text).is_ok());
        let error = error(&text, LOOSEST);
        prop_assert!(error.contains("appears twice"), "{}: {}", text, error);
    }
}
