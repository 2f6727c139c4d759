use super::*;

#[test]
fn answer_ids_match_numerically() {
    for (text, expected) in [
        ("5", Some(5)),
        (r#""5""#, Some(5)),
        ("5.0", Some(5)),
        (r#""5.00""#, Some(5)),
        ("9007199254740993.0", Some(9_007_199_254_740_993)),
        ("0", Some(0)),
        ("5.5", None),
        ("5.", None),
        ("5e0", None),
        ("-5", None),
        (r#""+5""#, None),
        (r#""05""#, None),
        (r#"" 5""#, None),
        (r#""""#, None),
        (r#""five""#, None),
        ("null", None),
        ("true", None),
        ("[5]", None),
        (r#"{"id":5}"#, None),
        ("99999999999999999999", None),
    ] {
        let id = RawValue::from_string(text.to_owned());
        // Invalid JSON never reaches this function.
        assert_eq!(id.ok().and_then(|id| number(Some(&id))), expected, "{text}");
    }
    assert_eq!(number(None), None);
}
