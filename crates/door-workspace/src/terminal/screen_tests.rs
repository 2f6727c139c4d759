use proptest::prelude::*;

use super::*;

#[test]
fn paste_mode_follows_the_program() {
    let table: [(&[u8], bool); 5] = [
        (b"", false),
        (b"\x1b[?2004h$ ", true),
        (b"\x1b[?2004h$ \x1b[?2004l", false),
        (b"\x1b[?25;2004h", true),
        (b"\x1b[?2004h\x1bc", false),
    ];
    for (output, expected) in table {
        let mut emulator = Emulator::new(5, 20);
        emulator.read(output);
        assert_eq!(emulator.uses_bracketed_paste(), expected, "{}", output.escape_ascii());
    }
}

#[test]
fn wide_characters_fill_two_columns() {
    let mut emulator = Emulator::new(2, 20);
    emulator.read("日本 \x1b[2mghost".as_bytes());
    let screen = emulator.screen(false);
    assert_eq!((screen.row(0).as_str(), screen.cursor), ("日本 ghost", (0, 10)));
    assert_eq!(screen.text(0, 0, 4), "日本");
    assert!(screen.rows[0][5].is_faint && !screen.rows[0][0].is_faint);
}

proptest! {
    #[test]
    fn any_output_and_size_is_survived(
        pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..60), 0_u16..40, 0_u16..40), 0..12),
        text in r"(\PC|\x1b\[[0-9;?]{0,6}[A-Za-z]){0,60}",
    ) {
        let mut emulator = Emulator::new(5, 10);
        for (output, rows, columns) in pieces {
            emulator.read(&output);
            emulator.resize(rows, columns);
            emulator.read(text.as_bytes());
            emulator.screen(true);
        }
    }
}
