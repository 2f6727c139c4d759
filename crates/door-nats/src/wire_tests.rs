use serde_json::json;

use super::*;

#[test]
fn malformed_envelope_is_rejected() {
    let refused =
        |value: Value| Envelope::parse(value.to_string().as_bytes()).expect_err("refused").to_string();
    assert!(Envelope::parse(b"\xff\xfe").is_err());
    assert!(Envelope::parse(b"").is_err());
    assert!(refused(json!([1, 2])).contains("not in the format of hubs"));
    assert!(refused(json!({"v": 2, "type": "message"})).contains("version 2"));
    assert!(refused(json!({"v": 1, "type": "command"})).contains("it is 'command', but must be"));
    assert!(refused(json!({"v": 1, "type": "receipt", "hub": "../x"})).contains("not allowed in a name"));
}

#[test]
fn receipt_round_trips() {
    let id = MessageId::from_parts(1, 2);
    let agents = vec![Name::parse("qc-1").unwrap()];
    let hub = Name::parse("office").unwrap();
    let reply =
        DeliveryReceipt { v: VERSION, envelope: EnvelopeKind::Receipt, hub, id, agents, refused: None };
    let text = String::from_utf8(to_bytes(&reply)).unwrap();
    let expected = format!(r#"{{"v":1,"type":"receipt","hub":"office","id":"{id}","agents":["qc-1"]}}"#);
    assert_eq!(text, expected);
    let Ok(Envelope::Receipt(back)) = Envelope::parse(text.as_bytes()) else { panic!("a receipt") };
    assert_eq!(back, reply);
}

#[test]
fn receipt_batch_skips_invalid_entries() {
    let id = MessageId::from_parts(1, 2);
    let batch = json!({
        "v": 1, "type": "words", "hub": "office", "said": [
            { "id": id.to_string(), "agent": "qc-1", "became": "seen" },
            { "id": id.to_string(), "agent": "qc-1", "became": "eaten" },
            { "id": id.to_string(), "agent": "qc-2", "became": "acknowledged", "note": "merged" },
        ],
    });
    let Ok(Envelope::ReceiptBatch(words)) = Envelope::parse(batch.to_string().as_bytes()) else {
        panic!("words")
    };
    assert_eq!(words.hub, Name::parse("office").unwrap());
    let agent = |name| Name::parse(name).unwrap();
    let expected = [
        ReaderReceipt { id, agent: agent("qc-1"), became: ReaderState::Seen, note: None },
        ReaderReceipt {
            id,
            agent: agent("qc-2"),
            became: ReaderState::Acknowledged,
            note: Some("merged".into()),
        },
    ];
    assert_eq!(parse_entries::<ReaderReceipt>(words.said), expected);
    assert_eq!(serde_json::to_value(&expected[1]).unwrap(), batch["said"][2], "written as it is read");
}

#[test]
fn roster_skips_invalid_agents() {
    let list = vec![json!({"name": "a/b"}), json!({"name": "qc-1", "channels": ["general"]}), json!(7)];
    let read: Vec<RosterAgent> = parse_entries(list);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].channels, [Name::parse("general").unwrap()]);
}
