//! A `router.json` from a clone.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use test_support::{Sandbox, files, poll};

use crate::workspace;

fn launch(sandbox: &Sandbox) -> test_support::RunOutput {
    sandbox.run(["worker", "launch", "--agent", "echo", "--prompt", "secret words", "--env", "TOKEN=hunter2"])
}

/// Writes an endpoint file that points to a foreign listener, which must receive nothing.
fn plant(sandbox: &Sandbox, signpost: &Value, mode: u32) {
    let path = sandbox.file("router.json");
    let _ = std::fs::remove_file(&path);
    files::put(&path, signpost.to_string());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn planted_endpoint_file_is_rejected() {
    let sandbox = workspace();
    let trap = TcpListener::bind("127.0.0.1:0").unwrap();
    trap.set_nonblocking(true).unwrap();
    let listen = trap.local_addr().unwrap().to_string();
    // A process that runs, but did not write the file.
    let pid = std::process::id();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for (signpost, mode) in [
        (json!({ "listen": listen, "pid": pid }), 0o600),
        (json!({ "listen": listen, "pid": pid, "owner": format!("{host}/{pid}/1") }), 0o600),
        (json!({ "listen": listen, "pid": pid, "owner": format!("elsewhere/{pid}/1") }), 0o600),
        (json!({ "listen": listen, "pid": pid, "owner": format!("{host}/{pid}/1") }), 0o644),
    ] {
        plant(&sandbox, &signpost, mode);
        let ran = launch(&sandbox);
        assert!(matches!(ran.code, Some(3 | 4)), "{signpost}: {ran:?}");
        assert_eq!(trap.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "{signpost}");
    }
}

#[test]
fn endpoint_file_with_changed_address_is_rejected() {
    let sandbox = workspace();
    let _serve = sandbox.serve();
    let path = sandbox.file("router.json");
    let own = poll::until("the endpoint file", || files::read_json_object(&path));
    sandbox.ok(["worker", "list"]);
    let mut changed = own.clone();
    changed["listen"] = "192.0.2.1:9".into();
    plant(&sandbox, &changed, 0o600);
    let ran = launch(&sandbox);
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("router.json is not used"), "{ran:?}");
    plant(&sandbox, &own, 0o644);
    assert_eq!(launch(&sandbox).code, Some(4));
    plant(&sandbox, &own, 0o600);
    sandbox.ok(["worker", "list"]);
}
