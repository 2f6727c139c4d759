use super::*;

fn file(name: &str) -> PathBuf {
    Path::new("/repo/.switchboard/inbox/codex").join(name)
}

#[test]
fn each_file_is_awaited_once() {
    let (ours, theirs) = (OwnFiles::default(), OwnFiles::default());
    ours.clone().listen();
    ours.expect(file("a"));
    assert!(!ours.is_awaited(&file("b")));
    assert!(ours.is_awaited(&file("a")));
    assert!(!ours.is_awaited(&file("a")), "whoever writes it again is somebody else");
    theirs.expect(file("a"));
    assert!(!theirs.is_awaited(&file("a")), "nobody listened");
}

#[test]
fn what_nobody_hears_of_does_not_pile_up() {
    let ours = OwnFiles::default();
    ours.listen();
    for number in 0..=MOST {
        ours.expect(file(&number.to_string()));
    }
    assert!(ours.is_awaited(&file(&MOST.to_string())));
    assert!(!ours.is_awaited(&file("0")));
}
