use serde_json::value::RawValue;

use super::{Object, raw};

#[test]
fn order_numbers_and_spaces_are_preserved() {
    let text = r#"{"z":123456789012345678901234567890,"name":"a","a":{"y":1,  "b":2.10}}"#;
    let json: Box<RawValue> = serde_json::from_str(text).unwrap();
    let mut object = Object::parse(&json).unwrap();
    let name = raw(&"child__a");
    object.set("name", &name);
    assert_eq!(object.to_raw().get(), text.replace(r#""a","#, r#""child__a","#));
}

#[test]
fn non_object_parses_to_none() {
    for text in ["[1]", "null", "\"x\"", "3"] {
        let json: Box<RawValue> = serde_json::from_str(text).unwrap();
        assert!(Object::parse(&json).is_none(), "{text}");
    }
}
