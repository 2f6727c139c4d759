use jiff::SignedDuration;

use crate::test_channels::{TestChannels, file, write_carelessly};

#[tokio::test]
async fn temporary_files_of_killed_writers_are_removed() {
    let test = TestChannels::new(&[]).await;
    test.drop_file(&file("msg-20260111-163315-codex-0001", "codex", "all", "hi"));
    let folders =
        ["channels/general", "channels/general/archive/2020-01", "signals/presence", "signals/claims/qc-1"];
    for folder in folders {
        write_carelessly(&test.path(&format!("{folder}/.tmp-1-0-0")), "half");
        write_carelessly(&test.path(&format!("{folder}/whole.json")), "{}");
    }
    // A plain file in place of a channel is ignored.
    write_carelessly(&test.path("channels/notes"), "mine");
    assert_eq!(test.channels.remove_unfinished().await.unwrap(), 0, "their writers may be at work elsewhere");
    test.clock.advance(SignedDuration::from_hours(2));
    assert_eq!(test.channels.remove_unfinished().await.unwrap(), folders.len());
    for folder in folders {
        assert!(!test.path(&format!("{folder}/.tmp-1-0-0")).exists(), "{folder}");
        assert!(test.path(&format!("{folder}/whole.json")).exists(), "{folder}");
    }
    assert!(test.path("channels/general/msg-20260111-163315-codex-0001.json").exists());
}
