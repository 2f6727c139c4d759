use tokio::io::BufReader;

use super::*;

/// Reads all lines of `input`, `step` bytes at a time.
async fn lines(input: &[u8], step: usize) -> Vec<Line> {
    let mut lines = Lines::new(BufReader::with_capacity(step, input), 8);
    let mut found = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        found.push(line);
    }
    found
}

fn whole(text: &str) -> Line {
    Line::Whole(text.as_bytes().to_vec())
}

#[tokio::test]
async fn line_breaks_bom_and_blanks_are_removed() {
    let input = b"\xef\xbb\xbfone\r\n\n  \r\ntwo\nlast";
    for step in [1, 2, 3, 100] {
        assert_eq!(lines(input, step).await, [whole("one"), whole("two"), whole("last")], "step {step}");
    }
}

#[tokio::test]
async fn long_line_is_skipped() {
    for step in [1, 5, 100] {
        let found = lines(b"12345678\n123456789\n12345678901234567890\nok\n123456789", step).await;
        let expected = [whole("12345678"), Line::TooLong, Line::TooLong, whole("ok"), Line::TooLong];
        assert_eq!(found, expected, "step {step}");
    }
}

#[tokio::test]
async fn empty_input_has_no_lines() {
    assert_eq!(lines(b"", 10).await, []);
    assert_eq!(lines(b"\n\n", 10).await, []);
}
