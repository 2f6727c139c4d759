use std::os::unix::fs::PermissionsExt;

use super::*;

fn folder() -> (tempfile::TempDir, Dir) {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = Dir::open_root(folder.path()).expect("it opens");
    (folder, dir)
}

fn key(byte: u8) -> HubKey {
    HubKey([byte; KEY_LENGTH])
}

/// RFC 4231, test case 1, whose key of 20 bytes is padded with zeros.
#[test]
fn mac_is_hmac_sha256() {
    let mut padded = [0; KEY_LENGTH];
    padded[..20].fill(0x0b);
    let mac = HubKey(padded).sign(b"Hi There");
    let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
    assert_eq!(decode(expected), Some(mac));
}

#[test]
fn key_is_generated_once_and_private() {
    let (folder, _) = folder();
    let place = folder.path().join("config/switchboard");
    let keys: Vec<HubKey> = std::thread::scope(|scope| {
        let draw = || HubKey::load_or_create(&place).expect("a key");
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
        threads.into_iter().map(|thread| thread.join().expect("joined")).collect()
    });
    assert!(keys.iter().all(|key| *key == keys[0]) && keys[0] != key(0));
    let mode = std::fs::metadata(place.join(KEY)).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(format!("{:?}", keys[0]), "HubKey(…)");
}

#[test]
fn key_that_others_can_read_is_refused() {
    let (folder, _) = folder();
    HubKey::load_or_create(folder.path()).expect("a key");
    let path = folder.path().join(KEY);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).expect("set");
    let error = HubKey::load_or_create(folder.path()).expect_err("refused").to_string();
    assert!(error.ends_with("other users can read it"), "{error}");
}

#[test]
fn binding_holds_for_one_file_and_key() {
    let (_folder, dir) = folder();
    dir.create_new(DATABASE, b"one", Durability::Unsynced).expect("made");
    let is_foreign = |key: &HubKey| matches!(verify(&dir, Some(key)), Err(HubError::ForeignDatabase { .. }));
    assert!(is_foreign(&key(1)), "without a binding");
    bind(&dir, &[DATABASE], Some(&key(1))).expect("bound");
    verify(&dir, Some(&key(1))).expect("ours");
    assert!(is_foreign(&key(2)), "with another key");
    verify(&dir, None).expect("not asked for");
    // A file that takes its place often gets its inode number, but not its birth time.
    for _ in 0..8 {
        dir.remove(DATABASE).expect("removed");
        dir.create_new(DATABASE, b"two", Durability::Unsynced).expect("made");
        assert!(is_foreign(&key(1)), "another file");
    }
}

#[test]
fn moved_folder_stays_bound() {
    let (folder, _) = folder();
    let (before, after) = (folder.path().join("before"), folder.path().join("after"));
    std::fs::create_dir(&before).expect("made");
    let dir = Dir::open_root(&before).expect("it opens");
    dir.create_new(DATABASE, b"one", Durability::Unsynced).expect("made");
    bind(&dir, &[DATABASE], Some(&key(1))).expect("bound");
    rustix::fs::rename(&before, &after).expect("moved");
    verify(&Dir::open_root(&after).expect("it opens"), Some(&key(1))).expect("ours");
}

#[test]
fn mangled_binding_is_none() {
    let (_folder, dir) = folder();
    dir.create_new(DATABASE, b"one", Durability::Unsynced).expect("made");
    for text in [&b"\xff\xfe"[..], b"zz", &[b'g'; 64], "ü".repeat(32).as_bytes()] {
        dir.replace(BINDING, text, 0o600).expect("written");
        assert!(matches!(verify(&dir, Some(&key(1))), Err(HubError::ForeignDatabase { .. })));
    }
}
