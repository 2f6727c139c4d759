use super::*;

fn answer(payload: &str, status: Option<StatusCode>) -> Message {
    Message {
        subject: "_INBOX.1".into(),
        reply: None,
        payload: payload.to_owned().into(),
        headers: None,
        status,
        description: None,
        length: payload.len(),
    }
}

#[test]
fn publish_acks_are_parsed() {
    let kept = [
        (r#"{"stream":"sb_messages", "seq":7}"#, 7),
        (r#"{"stream":"sb_messages","domain":"hub","seq":8,"duplicate":true}"#, 8),
    ];
    for (payload, expected) in kept {
        assert_eq!(sequence(&answer(payload, None)).unwrap(), expected, "{payload}");
    }
    let full = r#"{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"","seq":0}"#;
    let refused = [
        (answer(full, None), "maximum messages exceeded"),
        (answer("", Some(StatusCode::NO_RESPONDERS)), "no stream accepts messages"),
        (answer("nonsense", None), "expected"),
    ];
    for (answer, expected) in refused {
        let error = sequence(&answer).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
