//! A workspace of another user.

use std::os::unix::fs::chown;

use serde_json::json;
use test_support::RunOutput;

use crate::workspace;

/// The id of another user, which exists on every system.
const ANOTHER: u32 = 65_534;

#[test]
fn workspace_of_another_user_is_refused() {
    let sandbox = workspace();
    if chown(sandbox.file(""), Some(ANOTHER), None).is_err() {
        eprintln!("skipped: only root can give a folder away");
        return;
    }
    let below = sandbox.path().join("a/b");
    std::fs::create_dir_all(&below).unwrap();
    let mut command = sandbox.command(["inbox", "codex"]);
    let ran = RunOutput::of(command.current_dir(&below));
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(ran.stderr.contains("belongs to another user (uid 65534)"), "{ran:?}");
    assert!(ran.stderr.contains("trustedWorkspaces"), "{ran:?}");
    assert_eq!(sandbox.run(["init"]).code, Some(4));
    // The workspace cannot declare itself trusted.
    let trusting = json!({ "trustedWorkspaces": [sandbox.path()] }).to_string();
    test_support::files::put(sandbox.path().join("switchboard.config.json"), &trusting);
    assert_eq!(sandbox.run(["inbox", "codex"]).code, Some(4));
    std::fs::remove_file(sandbox.path().join("switchboard.config.json")).unwrap();
    // With `sudo` the workspace is the caller's own; the key is that of the caller, who has none here.
    let ran = RunOutput::of(sandbox.command(["suite", "list"]).env("SUDO_UID", ANOTHER.to_string()));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    sandbox.configure_user(&trusting);
    assert_eq!(sandbox.run(["inbox", "codex"]).code, Some(0));
}
