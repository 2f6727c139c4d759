use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::test_values::values;
use super::*;

fn raw(text: &str) -> Box<RawValue> {
    serde_json::from_str(text).unwrap()
}

#[test]
fn order_numbers_and_spaces_are_preserved() {
    let text = r#"{"z":123456789012345678901234567890,"name":"a","a":{"y":1,  "b":2.10}}"#;
    let json = raw(text);
    let mut object = RawObject::parse(&json).unwrap();
    object.set("name", to_raw("child__a"));
    assert_eq!(object.to_raw().get(), text.replace(r#""a","#, r#""child__a","#));
}

#[test]
fn non_object_parses_to_none() {
    for text in ["[1]", "null", "\"x\"", "3"] {
        assert!(RawObject::parse(&raw(text)).is_none(), "{text}");
    }
}

#[test]
fn last_duplicate_counts() {
    let json = raw(r#"{"a":1,"b":"x","a":2}"#);
    let mut object = RawObject::parse(&json).unwrap();
    assert_eq!(object.get("a").unwrap().get(), "2");
    object.set("a", to_raw(&3));
    assert_eq!(object.to_raw().get(), r#"{"a":3,"b":"x","a":3}"#);
    assert_eq!(object.remove("a").unwrap().get(), "3");
    assert_eq!((object.remove("a").is_none(), object.to_raw().get()), (true, r#"{"b":"x"}"#));
    assert_eq!((object.text("b"), object.text("c")), (Some("x".to_owned()), None));
    object.set("c", to_raw(&[1]));
    object.retain(|key, _| key != "b");
    assert_eq!(object.to_raw().get(), r#"{"c":[1]}"#);
}

#[test]
fn present_null_differs_from_missing_field() {
    #[derive(Deserialize)]
    struct Message<'a> {
        #[serde(borrow, default, deserialize_with = "deserialize_present")]
        id: Option<&'a RawValue>,
    }
    let id = |text: &'static str| serde_json::from_str::<Message<'_>>(text).unwrap().id.map(RawValue::get);
    assert_eq!([r#"{"id":null}"#, "{}", r#"{"id":[ 1]}"#].map(id), [Some("null"), None, Some("[ 1]")]);
}

proptest! {
    #[test]
    fn garbage_never_panics(text in "[\\[\\]{}:,\"a0\\\\u ]{0,60}") {
        if let Ok(json) = serde_json::from_str::<Box<RawValue>>(&text) {
            prop_assert_eq!(RawObject::parse(&json).is_some(), text.trim_start().starts_with('{'));
        }
    }

    #[test]
    fn members_round_trip(members in proptest::collection::vec((".{0,6}", values()), 0..6)) {
        let written: Vec<String> = members.iter().map(|(key, value)| format!("{}:{value}", json!(key))).collect();
        let json = raw(&format!("{{{}}}", written.join(",")));
        let object = RawObject::parse(&json).unwrap();
        let written = object.to_raw();
        prop_assert_eq!(written.get(), json.get());
        prop_assert_eq!((object.is_empty(), object.iter().count()), (members.is_empty(), members.len()));
        let parsed: Value = serde_json::from_str(json.get()).unwrap();
        for (key, _) in &members {
            prop_assert_eq!(object.get(key).unwrap().get(), parsed[key.as_str()].to_string());
        }
    }

    #[test]
    fn set_member_is_read_back(members in proptest::collection::vec(("[a-c]", values()), 0..5), value in values()) {
        let mut object = RawObject::default();
        for (key, value) in &members {
            object.0.push((Cow::Borrowed(key), Cow::Owned(to_raw(value))));
        }
        let others = object.iter().filter(|(key, _)| *key != "b").map(|(_, value)| value.get().to_owned()).collect::<Vec<_>>();
        object.set("b", to_raw(&value));
        prop_assert_eq!(object.get("b").unwrap().get(), value.to_string());
        object.remove("b");
        prop_assert_eq!(object.iter().map(|(_, value)| value.get().to_owned()).collect::<Vec<_>>(), others);
    }
}
