use super::*;

fn read(text: &str, piece: usize) -> (Vec<(String, String)>, EventParser) {
    let mut events = EventParser::new(1024);
    let mut got = Vec::new();
    for piece in text.as_bytes().chunks(piece) {
        events.push(piece);
        while let Some(event) = events.next().expect("it is small") {
            got.push((event.event, String::from_utf8_lossy(&event.data).into_owned()));
        }
    }
    (got, events)
}

#[test]
fn events_parse_in_any_chunks() {
    let text = "\u{feff}: hello\nid: 7\nevent: message\ndata: {\"a\":1}\n\nretry: 250\n\ndata:one\r\ndata: two\r\n\r\nid: 8\n\ndata: x\n";
    let expected = [("message".to_owned(), "{\"a\":1}".to_owned()), (String::new(), "one\ntwo".to_owned())];
    for piece in [1, 2, 3, 5, 1000] {
        let (got, events) = read(text, piece);
        assert_eq!(got, expected, "in pieces of {piece}");
        assert_eq!((events.last_id.as_deref(), events.retry), (Some("8"), Some(250)));
    }
}

#[test]
fn event_size_is_bounded() {
    let mut events = EventParser::new(100);
    events.push(&[b'x'; 200]);
    assert_eq!(events.next(), Err(TooLarge));
    let mut events = EventParser::new(100);
    events.push("data: 0123456789\n".repeat(20).as_bytes());
    assert_eq!(events.next(), Err(TooLarge));
}
