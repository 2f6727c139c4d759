use proptest::prelude::*;

use super::*;

#[test]
fn ambiguous_json_is_refused() {
    for (text, problem) in [
        (r#"{"a":1,"a":2}"#, "'a' occurs twice"),
        (r#"{"m":{"x":{"k":1,"k":1}}}"#, "'k' occurs twice"),
        (r#"{"a":"x\u0000y"}"#, "NUL"),
        (r#"{"a\u0000":1}"#, "NUL"),
        ("{} {}", "trailing"),
        ("{\"a\":1", "EOF"),
        ("\"\\ud800\"", ""),
    ] {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(problem), "{text}: {error}");
    }
    assert!(parse(b"\"\xff\"").is_err());
    let deep = "[".repeat(40) + &"]".repeat(40);
    assert!(parse(deep.as_bytes()).unwrap_err().to_string().contains("nested deeper"));
}

proptest! {
    #[test]
    fn garbage_is_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes);
    }

    #[test]
    fn serde_output_round_trips(keys in proptest::collection::btree_map("[a-z]{1,6}", ".{0,20}", 0..6)) {
        let keys: std::collections::BTreeMap<_, String> =
            keys.into_iter().map(|(key, value): (String, String)| (key, value.replace('\0', ""))).collect();
        let text = serde_json::to_string(&keys).unwrap();
        let expected: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(parse(text.as_bytes()).unwrap(), expected);
    }
}
