use proptest::prelude::*;
use serde_json::json;

use super::super::test_values::{values, values_with};
use super::*;

fn text(value: &Value) -> String {
    String::from_utf8(canonicalize(value).unwrap()).unwrap()
}

/// The examples of RFC 8785, sections 3.2.2 and 3.2.3.
#[test]
fn rfc_examples_match() {
    let value: Value = serde_json::from_str(
        r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],
            "string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
    )
    .unwrap();
    assert_eq!(
        text(&value),
        "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
         \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}"
    );
    let value: Value = serde_json::from_str(
        r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
    )
    .unwrap();
    // Sorted by UTF-16 code units: the emoji comes before U+FB33.
    let order = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"];
    let text = text(&value);
    let places: Vec<_> = order.iter().map(|word| text.find(word).unwrap()).collect();
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn rounded_number_has_no_canonical_form() {
    assert!(canonicalize(&json!({ "n": 9_007_199_254_740_991_u64 })).is_some());
    assert!(canonicalize(&json!({ "n": [9_007_199_254_740_992_u64] })).is_none());
    assert!(canonicalize(&json!(-9_007_199_254_740_992_i64)).is_none());
    // With an exponent it is the same number.
    assert!(canonicalize(&json!(9.007_199_254_740_992e15)).is_none());
    assert!(canonicalize(&json!(-1e20)).is_none());
    assert_eq!(text(&json!([9e15, 1e21])), "[9000000000000000,1e+21]");
}

#[test]
fn hash_form_keeps_number_texts() {
    let value = json!({ "b": [1.0, u64::MAX, -0.0], "a": 1e30 });
    assert_eq!(canonicalize_any(&value), br#"{"a":1e+30,"b":[1.0,18446744073709551615,-0.0]}"#);
    // A string that looks like structure is still a string.
    assert_ne!(
        canonicalize_any(&json!({ "a": "b\",\"c\":\"d" })),
        canonicalize_any(&json!({ "a": "b", "c": "d" }))
    );
}

/// Values whose numbers all have an exact form.
fn exact_values() -> impl Strategy<Value = Value> {
    values_with(prop_oneof![
        any::<i32>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("exact", |n| Number::from_f64(*n).is_some_and(|n| is_exact(&n)))
            .prop_map(Value::from),
    ])
}

proptest! {
    /// Canonicalization is idempotent.
    #[test]
    fn canonicalization_is_idempotent(value in exact_values()) {
        let once = canonicalize(&value).unwrap();
        let again = canonicalize(&serde_json::from_slice(&once).unwrap()).unwrap();
        prop_assert_eq!(once, again);
    }

    /// Layout and field order do not matter; the value does.
    #[test]
    fn canonical_form_depends_on_value(value in exact_values(), other in exact_values()) {
        let wrapped = Value::Object([("z".to_owned(), value.clone()), ("a".to_owned(), value.clone())].into_iter().collect());
        let spread = format!("{{ \"a\" :\n {value:#},\t\"z\": {value} }}");
        prop_assert_eq!(canonicalize(&wrapped), canonicalize(&serde_json::from_str(&spread).unwrap()));
        let reads = |value: &Value| serde_json::from_slice::<Value>(&canonicalize(value).unwrap()).unwrap();
        prop_assert_eq!(canonicalize(&value) == canonicalize(&other), reads(&value) == reads(&other));
    }

    /// Our writer against the published implementation.
    #[test]
    fn canonical_form_matches_reference_implementation(value in exact_values()) {
        prop_assert_eq!(canonicalize(&value).unwrap(), serde_json_canonicalizer::to_vec(&value).unwrap());
    }

    /// Any value has a form for hashes, and it round trips.
    #[test]
    fn hash_form_round_trips(value in values(), other in values()) {
        let form = canonicalize_any(&value);
        prop_assert_eq!(&serde_json::from_slice::<Value>(&form).unwrap(), &value);
        prop_assert!(form != canonicalize_any(&other) || value == other);
    }
}
