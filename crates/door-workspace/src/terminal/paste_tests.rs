use proptest::prelude::*;

use super::*;

fn after(output: &[u8]) -> bool {
    let mut mode = PasteMode::default();
    mode.read(output);
    mode.is_on()
}

#[test]
fn the_last_word_counts() {
    let table: [(&[u8], bool); 14] = [
        (b"", false),
        (b"$ ls\r\n", false),
        (b"\x1b[?2004h$ ", true),
        (b"\x1b[?2004h$ \x1b[?2004l", false),
        (b"\x1b[?2004l\x1b[?2004h", true),
        (b"\x1b[?1049;2004h", true),
        (b"\x1b[?2004;25h", true),
        (b"\x1b[?25h", false),
        (b"\x1b[?2004h\x1b[?25l", true),
        (b"\x1b[2004h", false),
        (b"[?2004h", false),
        (b"\x1b[?2004\x1b[?2004h", true),
        (b"\x1b[?2004h\x1bc", false),
        (b"\x1b[?12004h\x1b[?20044h\x1b[?20 04h", false),
    ];
    for (output, expected) in table {
        assert_eq!(after(output), expected, "{}", output.escape_ascii());
    }
}

proptest! {
    #[test]
    fn it_may_be_cut_anywhere(
        pieces in prop::collection::vec(
            prop_oneof![
                Just(&b"\x1b[?2004h"[..]), Just(&b"\x1b[?2004l"[..]), Just(&b"text"[..]), Just(&b"\x1b[1;31m"[..]),
                Just(&b"\x1b[?1;2004h"[..]), Just(&b"\x1b"[..]), Just(&b"\x1b["[..]), Just(&b"\x1bc"[..]),
            ],
            0..12,
        ),
        cuts in prop::collection::vec(0_usize..200, 0..6),
    ) {
        let output = pieces.concat();
        let mut mode = PasteMode::default();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(output.len())).collect();
        cuts.sort_unstable();
        let mut from = 0;
        for cut in cuts.into_iter().chain([output.len()]) {
            mode.read(&output[from..cut]);
            from = cut;
        }
        prop_assert_eq!(mode.is_on(), after(&output));
    }

    #[test]
    fn garbage_is_no_trouble(output: Vec<u8>) {
        after(&output);
    }
}
