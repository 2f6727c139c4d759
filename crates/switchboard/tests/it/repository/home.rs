//! Folders of the user: without them nothing is written anywhere else.

use test_support::{RunOutput, Sandbox, files};

use crate::{BINARY, workspace};

/// Verbs that read or write the user's files.
const VERBS: [&[&str]; 6] = [
    &["init", "codex"],
    &["send", "codex", "hi"],
    &["suite", "list"],
    &["install", "claude", "--user"],
    &["run", "--name", "codex", "--", "true"],
    &["suite", "add", "n", "--", "true"],
];

/// Returns the entries next to the workspace folder.
fn entries(sandbox: &Sandbox) -> Vec<String> {
    let names = std::fs::read_dir(sandbox.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".switchboard").collect()
}

#[test]
fn relative_home_is_refused() {
    for name in ["HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
        let sandbox = Sandbox::bare(BINARY);
        for verb in VERBS {
            let ran = RunOutput::of(sandbox.command(verb).env(name, "rel"));
            assert_eq!(ran.code, Some(1), "{name} {verb:?}: {ran:?}");
            assert!(
                ran.stderr.contains(&format!("{name} is 'rel', which is not an absolute path")),
                "{ran:?}"
            );
            assert!(ran.stderr.contains(&format!("set {name} to")), "{ran:?}");
        }
        assert_eq!(entries(&sandbox), Vec::<String>::new());
    }
}

#[test]
fn decisions_of_repository_do_not_count() {
    let sandbox = workspace();
    let folder = sandbox.file("mcps/notes");
    std::fs::create_dir_all(&folder).unwrap();
    files::put(folder.join(".mcp.json"), r#"{ "name": "notes", "command": { "cmd": "true" } }"#);
    sandbox.ok(["suite", "trust", "notes", "--yes"]);
    // The repository contains a home in which it is trusted.
    files::copy_tree(&sandbox.home().join(".config"), &sandbox.path().join("rel/.config"));
    let ran = RunOutput::of(sandbox.command(["suite", "list"]).env("HOME", "rel"));
    assert!(ran.code == Some(1) && ran.stdout.is_empty(), "{ran:?}");
}

#[test]
fn missing_home_is_named() {
    for home in [None, Some("")] {
        let sandbox = Sandbox::bare(BINARY);
        let run = |verb: &[&str]| {
            let mut command = sandbox.command(verb);
            match home {
                Some(home) => command.env("HOME", home),
                None => command.env_remove("HOME"),
            };
            // The key of the database is then in another folder; the user's real home does not replace it.
            RunOutput::of(command.env("XDG_CONFIG_HOME", sandbox.home()))
        };
        run(&["init", "codex"]).ok();
        run(&["send", "codex", "hi"]).ok();
        assert!(sandbox.home().join("switchboard/hub.key").exists());
        for (verb, hint) in [
            (&["suite", "list"][..], "XDG_CACHE_HOME"),
            (&["install", "claude", "--user"], "set HOME"),
            (&["swarm", "key"], "set SWARM_HOME"),
        ] {
            let ran = run(verb);
            assert!(ran.code == Some(1) && ran.stderr.contains("HOME is"), "{verb:?}: {ran:?}");
            assert!(ran.stderr.contains(hint), "{verb:?}: {ran:?}");
        }
        assert_eq!(entries(&sandbox), Vec::<String>::new());
    }
}

#[test]
fn unwritable_home_is_named() {
    let sandbox = Sandbox::bare(BINARY);
    // No user can write there, not even root.
    let ran = RunOutput::of(sandbox.command(["init"]).env("HOME", "/proc"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("/proc/.config/switchboard/hub.key cannot be used"), "{ran:?}");
    let ran = RunOutput::of(sandbox.command(["install", "claude", "--user"]).env("HOME", "/proc"));
    assert!(ran.code == Some(1) && ran.stderr.contains("/proc/"), "{ran:?}");
}
