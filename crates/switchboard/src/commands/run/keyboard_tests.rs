use super::*;

const IDLE: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn enter_ends_line_arrow_keys_start_none() {
    let table: [(&[&[u8]], bool); 12] = [
        (&[], false),
        (&[b"a"], true),
        (&[b"a", b"\r"], false),
        (&[b"abc\r"], false),
        (&[b"abc\rd"], true),
        (&[b"abc", b"\x03"], false),
        (&[b"\x1b[A"], false),
        (&[b"a", b"\x1b[D"], true),
        (&[b"\x1b[I", b"\x1b[24;80R"], false),
        (&[b"\x1b[200~pasted\x1b[201~"], true),
        (&[b"\x1b[200~pasted\x1b[201~", b"\r"], false),
        (&[b"line\n"], false),
    ];
    for (pieces, begun) in table {
        let mut watch = Watch::new(24, 80);
        for piece in pieces {
            watch.note_keys(piece);
        }
        assert_eq!(watch.is_line_begun, begun, "{pieces:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn notices_wait_for_quiet_executes_for_keys() {
    let mut watch = Watch::new(24, 80);
    let is_free = |watch: &Watch, when| watch.check_quiet(when, IDLE).is_ok();
    watch.note_keys(b"half a line");
    assert!(!is_free(&watch, TypeCondition::LineIsFree) && !is_free(&watch, TypeCondition::AllIsQuiet));
    tokio::time::advance(KEYS_IDLE).await;
    watch.note_output(b"\x1b[?2004h...");
    assert!(is_free(&watch, TypeCondition::LineIsFree) && !is_free(&watch, TypeCondition::AllIsQuiet));
    tokio::time::advance(IDLE).await;
    assert!(is_free(&watch, TypeCondition::AllIsQuiet));
    assert!(watch.emulator.uses_bracketed_paste());
}
