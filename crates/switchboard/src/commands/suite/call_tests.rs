use serde_json::json;

use super::{block, read};

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[test]
fn arguments_are_one_object_or_pairs() {
    assert_eq!(read(&words(&[])).unwrap(), json!({}));
    assert_eq!(read(&words(&[r#" {"a": 1}"#])).unwrap(), json!({ "a": 1 }));
    assert_eq!(
        read(&words(&["a=1", "b:=1", "c:=[true]", "d=x=y", "e="])).unwrap(),
        json!({ "a": "1", "b": 1, "c": [true], "d": "x=y", "e": "" })
    );
    for wrong in [&["{"][..], &["plain"], &["a:=x"], &["=x"], &[r#"{"a":1}"#, "b=1"]] {
        assert_eq!(read(&words(wrong)).unwrap_err().code, "usage", "{wrong:?}");
    }
}

#[test]
fn non_text_blocks_are_named() {
    assert_eq!(block(&json!({ "type": "text", "text": "hi" })), "hi");
    assert_eq!(
        block(&json!({ "type": "image", "data": "aGk=", "mimeType": "image/png" })),
        "[image, image/png; --json shows it]"
    );
    assert_eq!(block(&json!({ "type": "odd" })), "[odd; --json shows it]");
}
