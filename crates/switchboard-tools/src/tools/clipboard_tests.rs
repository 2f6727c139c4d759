use std::os::unix::fs::PermissionsExt;

use rustix::process::{Pid, Signal};

use super::*;
use crate::test_workspace::write_carelessly;

/// Reads the content and keeps running with it, like the programs of X11 and Wayland.
const STAYING: &str =
    "#!/bin/sh\ncat > \"$1/content\"\ntail -f /dev/null > /dev/null 2>&1 &\necho $! > \"$1/pid\"\n";

#[tokio::test]
async fn clipboard_owner_process_keeps_running() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("fake-copy");
    write_carelessly(&program, STAYING);
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
    let folder = folder.path().to_str().unwrap();
    assert!(copy(program.to_str().unwrap(), &[folder], b"for the person").await.unwrap());
    let left = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    assert_eq!(left("content"), "for the person");
    let holder = Pid::from_raw(left("pid").trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(holder, Signal::KILL).expect("it is there still");
}

#[test]
fn auth_token_is_not_copied() {
    let folder = tempfile::TempDir::new().unwrap();
    write_carelessly(&folder.path().join(SECRET), "secret");
    write_carelessly(&folder.path().join("notes.md"), "plain");
    let workspace = Dir::open_root(folder.path()).unwrap();
    assert_eq!(read(&workspace, "notes.md").unwrap(), b"plain");
    for path in [SECRET, "./.switchboard/../.switchboard/auth_token"] {
        assert_eq!(read(&workspace, path).unwrap_err(), "it is the key to this server", "{path}");
    }
}
