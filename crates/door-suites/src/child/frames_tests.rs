use proptest::prelude::*;

use super::*;

const CAP: usize = 64 * 1024;

#[derive(Debug, PartialEq, Eq, Clone)]
enum Got {
    Message(String),
    Log(String),
}

/// Reads the bytes in chunks of the given sizes, cyclically.
fn read(bytes: &[u8], pieces: &[usize]) -> Result<Vec<Got>, FrameError> {
    let mut frames = FrameReader::new(CAP);
    let mut got = Vec::new();
    let mut sizes = pieces.iter().copied().cycle();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
        frames.buffer().extend_from_slice(piece);
        rest = after;
        while let Some(frame) = frames.next()? {
            got.push(match frame {
                Frame::Message { body, .. } => Got::Message(String::from_utf8_lossy(body).into_owned()),
                Frame::Log(line) => Got::Log(String::from_utf8_lossy(line).into_owned()),
            });
        }
    }
    Ok(got)
}

fn message(text: &str) -> Got {
    Got::Message(text.to_owned())
}

fn log(text: &str) -> Got {
    Got::Log(text.to_owned())
}

#[test]
fn both_framings_parse_in_any_chunks() {
    let cases: &[(&str, &[Got])] = &[
        ("{\"a\":1}\n{\"b\":2}\r\n", &[message("{\"a\":1}"), message("{\"b\":2}")]),
        ("Content-Length: 7\r\n\r\n{\"a\":1}", &[message("{\"a\":1}")]),
        ("content-length:7\n\n{\"a\":1}\n{\"b\":2}\n", &[message("{\"a\":1}"), message("{\"b\":2}")]),
        (
            "Content-Type: application/json\r\nCONTENT-LENGTH: 8\r\n\r\n{\"é\":1}x\n",
            &[message("{\"é\":1}"), log("x")],
        ),
        (
            "Content-Length: 11\r\n\r\n{\"a\":\n\"\n\"}\n\n\nContent-Length: 2\r\n\r\n{}",
            &[message("{\"a\":\n\"\n\"}\n"), message("{}")],
        ),
        ("\u{feff}{\"a\":1}\n", &[message("{\"a\":1}")]),
        (
            "starting up\n  {\"a\":1}\nContent is king\n",
            &[log("starting up"), message("{\"a\":1}"), log("Content is king")],
        ),
        ("Content-loader: ready\n{\"a\":1}\n", &[log("Content-loader: ready"), message("{\"a\":1}")]),
        ("Content-Type: x\n\n{\"a\":1}\n", &[log("Content-Type: x"), message("{\"a\":1}")]),
        ("\n\r\n[]\n", &[message("[]")]),
    ];
    for (bytes, expected) in cases {
        for pieces in [&[1][..], &[2], &[3, 7], &[5], &[100_000]] {
            assert_eq!(read(bytes.as_bytes(), pieces).as_deref(), Ok(*expected), "{bytes:?} in {pieces:?}");
        }
    }
}

#[test]
fn invalid_content_length_is_an_error() {
    let bad = |value: &str| read(format!("Content-Length: {value}\r\n\r\n{{}}").as_bytes(), &[1]);
    assert_eq!(bad("-1"), Err(FrameError::BadLength { value: "-1".to_owned() }));
    assert_eq!(bad("seven"), Err(FrameError::BadLength { value: "seven".to_owned() }));
    assert_eq!(bad(""), Err(FrameError::BadLength { value: String::new() }));
    assert_eq!(bad("99999999"), Err(FrameError::TooLarge { announced: 99_999_999, cap: CAP }));
    assert_eq!(bad("99999999999999999999999"), Err(FrameError::TooLarge { announced: u64::MAX, cap: CAP }));
}

#[test]
fn endless_line_is_an_error() {
    let long = vec![b'x'; CAP + 1];
    assert_eq!(read(&long, &[4096]), Err(FrameError::TooLong { cap: CAP }));
    let mut json = b"{\"a\":\"".to_vec();
    json.extend_from_slice(&long);
    assert_eq!(read(&json, &[4096]), Err(FrameError::TooLong { cap: CAP }));
}

#[test]
fn long_log_line_is_truncated() {
    let mut bytes = vec![b'x'; LOG_LINE_CAP * 3];
    bytes.extend_from_slice(b"\n{\"a\":1}\n");
    let expected = vec![log(&"x".repeat(LOG_LINE_CAP)), message("{\"a\":1}")];
    assert_eq!(read(&bytes, &[1000]), Ok(expected.clone()));
    assert_eq!(read(&bytes, &[1_000_000]), Ok(expected));
}

#[test]
fn consumed_bytes_are_freed() {
    let mut frames = FrameReader::new(CAP);
    for _ in 0..10_000 {
        frames.buffer().extend_from_slice(b"{\"some\":\"message\"}\n");
        assert!(frames.next().expect("it is a message").is_some());
        assert!(frames.next().expect("it is nothing").is_none());
    }
    assert!(frames.bytes.capacity() < CAP);
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2000), piece in 1usize..50) {
        let _ = read(&bytes, &[piece]);
    }

    #[test]
    fn chunk_size_does_not_matter(
        parts in proptest::collection::vec("\\{[a-z]{0,20}\\}|[a-z ]{1,10}|Content-[a-z]{1,5}: [0-9]", 0..20),
        framed in proptest::collection::vec(any::<bool>(), 20),
        pieces in proptest::collection::vec(1usize..40, 1..8),
    ) {
        let mut bytes = Vec::new();
        for (part, framed) in parts.iter().zip(framed) {
            if framed {
                bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n{part}", part.len()).as_bytes());
            } else {
                bytes.extend_from_slice(part.as_bytes());
                bytes.push(b'\n');
            }
        }
        prop_assert_eq!(read(&bytes, &pieces), read(&bytes, &[usize::MAX]));
    }
}
