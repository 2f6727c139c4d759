use super::*;

fn file(name: &str) -> PathBuf {
    Path::new("/repo/.switchboard/inbox/codex").join(name)
}

#[test]
fn own_file_is_expected_once() {
    let (ours, theirs) = (OwnFiles::default(), OwnFiles::default());
    ours.clone().start_recording();
    ours.expect(file("a"));
    assert!(!ours.remove_expected(&file("b")));
    assert!(ours.remove_expected(&file("a")));
    assert!(!ours.remove_expected(&file("a")), "a second write is by another process");
    theirs.expect(file("a"));
    assert!(!theirs.remove_expected(&file("a")), "no watcher runs");
}

#[test]
fn expected_files_are_bounded() {
    let ours = OwnFiles::default();
    ours.start_recording();
    for number in 0..=MAX_EXPECTED {
        ours.expect(file(&number.to_string()));
    }
    assert!(ours.remove_expected(&file(&MAX_EXPECTED.to_string())));
    assert!(!ours.remove_expected(&file("0")));
}
