use proptest::prelude::*;

use super::*;

fn cut(pieces: &[&[u8]], cap: usize) -> Vec<Line> {
    let mut lines = Lines::new(cap);
    let mut all = Vec::new();
    for piece in pieces {
        lines.buffer.extend_from_slice(piece);
        while let Some(line) = lines.next() {
            all.push(line);
        }
    }
    all.extend(lines.rest());
    all
}

fn whole(text: &str) -> Line {
    Line::Complete(text.as_bytes().to_vec())
}

#[test]
fn lines_end_with_lf_crlf_or_eof() {
    assert_eq!(cut(&[b"a\r\nb\n\nc"], 10), [whole("a"), whole("b"), whole(""), whole("c")]);
}

#[test]
fn long_line_is_reported_once_and_skipped() {
    let long = vec![b'x'; 50];
    assert_eq!(cut(&[&long, &long, b"tail\nnext\n"], 40), [Line::TooLong, whole("next")]);
    assert_eq!(cut(&[&[&long[..], b"\nnext\n"].concat()], 40), [Line::TooLong, whole("next")]);
}

#[test]
fn unicode_separator_does_not_end_line() {
    assert_eq!(cut(&["a\u{2028}b\n".as_bytes()], 40), [whole("a\u{2028}b")]);
}

proptest! {
    /// The lines do not depend on how reads split the bytes, and the buffer stays within the limit.
    #[test]
    fn lines_do_not_depend_on_read_sizes(bytes in prop::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..400), step in 1_usize..40) {
        let pieces: Vec<&[u8]> = bytes.chunks(step).collect();
        prop_assert_eq!(cut(&pieces, 1000), cut(&[&bytes], 1000));
        let mut lines = Lines::new(16);
        for piece in pieces {
            lines.buffer.extend_from_slice(piece);
            while lines.next().is_some() {}
            prop_assert!(lines.buffer.len() <= 16);
        }
    }
}
