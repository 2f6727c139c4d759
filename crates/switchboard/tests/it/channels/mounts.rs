//! Channels on a mount that is unmounted and remounted.

use std::process::Command;

use serde_json::json;
use test_support::{RunOutput, Sandbox, files, tools};

use crate::{BINARY, workspace};

/// A post to a folder that has become read-only, in its own mount namespace.
const READ_ONLY: &str = r#"
set -eu
mount -t tmpfs tmpfs mnt
"$BINARY" channel post --agent codex --channel general --text "first" > /dev/null
mount -o remount,ro mnt
"$BINARY" serve --port 0 > serve.out 2> serve.err &
serve=$!
set +e
"$BINARY" channel post --agent claude --channel general --to codex --text "late" > post.out 2> post.err
echo "post $?"
set -e
id=$(sed -n 's/.*error: \([^ ]*\) is accepted.*/\1/p' post.err)
"$BINARY" receipt "$id" --from claude --json > read_only.json
mount -o remount,rw mnt
until "$BINARY" receipt "$id" --from claude --json > written.json && grep -q '"delivered"' written.json; do
    kill -0 $serve
    sleep 0.05
done
echo "late posts: $(grep -l '"late"' mnt/channels/general/*.json | wc -l)"
kill $serve
wait $serve || true
umount mnt
"#;

/// A folder that is read-only at its first use and is then unmounted.
const READ_ONLY_AT_FIRST: &str = r#"
set -eu
mount -t tmpfs -o ro tmpfs mnt
"$BINARY" serve --port 0 > serve.out 2> serve.err &
serve=$!
until grep -q 'wait for it' serve.err; do kill -0 $serve; sleep 0.05; done
post() { "$BINARY" channel post --agent claude --channel general --text "lost"; }
set +e
post 2> post.err; echo "read-only $?"
umount mnt
post 2> /dev/null; echo "unmounted $?"
"$BINARY" watch --agent qc-1 --channel general -- true > /dev/null 2>&1; echo "watch $?"
set -e
echo "below the mount point: $(ls -A mnt)"
kill $serve
wait $serve || true
echo "below the mount point: $(ls -A mnt)"
"#;

/// The complete scenario, in its own mount namespace if possible. Otherwise the folder is moved away, which looks the
/// same. It waits for conditions only.
const SCENARIO: &str = r#"
set -eu
if mount --bind disk mnt 2> /dev/null; then
    attach() { mount --bind disk mnt; }
    detach() { umount mnt 2> /dev/null; }
    detach
else
    attach() { rmdir mnt && mv disk mnt; }
    detach() { mv mnt disk && mkdir mnt; }
fi
post() { "$BINARY" channel post --agent codex --channel general "$@"; }
attach
"$BINARY" watch --agent qc-1 --channel general -- sh -c 'cat > /dev/null; echo 42' 2> watch.err > watch.out &
watcher=$!
until grep -q 'qc-1 watches' watch.out; do kill -0 $watcher; sleep 0.05; done
post --text "before"
# Nothing but a read in progress keeps it busy.
tries=0
until detach; do tries=$((tries + 1)); test $tries -lt 200; sleep 0.05; done
set +e
post --text "lost" 2> post.err; echo "post $?"
"$BINARY" channel read --channel general 2> /dev/null; echo "read $?"
"$BINARY" doctor --json > doctor.out 2> /dev/null; echo "doctor $?"
set -e
echo "below the mount point: $(ls -A mnt)"
attach
post --to qc-1 --text "and now?" > asked
until grep -l '"42"' mnt/channels/general/*.json > /dev/null; do kill -0 $watcher; sleep 0.05; done
kill $watcher
wait $watcher || true
echo "below the mount: $(ls mnt/channels/general | wc -l) files"
"#;

fn shared(sandbox: &Sandbox) -> std::path::PathBuf {
    let root = sandbox.path().join("mnt");
    std::fs::create_dir_all(sandbox.path().join("disk")).unwrap();
    std::fs::create_dir_all(&root).unwrap();
    sandbox.configure_user(&json!({ "channels": { "root": root } }).to_string());
    root
}

#[expect(clippy::disallowed_methods, reason = "stands for a person at a shell")]
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn unmounted_root_loses_no_post() {
    let sandbox = workspace();
    shared(&sandbox);
    // Without root it needs a user namespace as well, which not every system allows.
    let way = "unshare -m true && exec unshare -m sh -c \"$SCENARIO\"; \
        unshare -U -r -m true && exec unshare -U -r -m sh -c \"$SCENARIO\"; exec sh -c \"$SCENARIO\"";
    let like = sandbox.command([""; 0]);
    let mut command = shell(way);
    command.current_dir(sandbox.path()).env("BINARY", BINARY).env("SCENARIO", SCENARIO);
    for (name, value) in like.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ran = RunOutput::of(&mut command);
    let output = |file: &str| output_file(&sandbox, file);
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| !line.starts_with("msg-")).collect();
    let expected = ["post 3", "read 3", "doctor 1", "below the mount point: ", "below the mount: 3 files"];
    assert_eq!(lines, expected, "{ran:?}\n{}", output("watch.err"));
    assert!(
        output("post.err").contains("it has no signals/folder; is it mounted?"),
        "{}",
        output("post.err")
    );
    assert!(output("doctor.out").contains("is another one than before"), "{}", output("doctor.out"));
}

/// Runs a scenario that mounts file systems; `None` where mounting is not allowed.
fn run_mounted(sandbox: &Sandbox, test: &str, scenario: &str) -> Option<RunOutput> {
    let mut probe = shell("exec unshare -U -r -m mount -t tmpfs tmpfs mnt");
    probe.current_dir(sandbox.path());
    if let Err(reason) = tools::run(&mut probe) {
        tools::skip(test, &reason);
        return None;
    }
    let mut command = shell("exec unshare -U -r -m sh -c \"$SCENARIO\"");
    command.current_dir(sandbox.path()).env("BINARY", BINARY).env("SCENARIO", scenario);
    for (name, value) in sandbox.command([""; 0]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    Some(RunOutput::of(&mut command))
}

fn output_file(sandbox: &Sandbox, file: &str) -> String {
    std::fs::read_to_string(sandbox.path().join(file)).unwrap_or_default()
}

#[test]
fn post_to_read_only_root_is_written_later() {
    let sandbox = workspace();
    shared(&sandbox);
    let test = "post_to_read_only_root_is_written_later";
    let Some(ran) = run_mounted(&sandbox, test, READ_ONLY) else { return };
    let output = |file: &str| output_file(&sandbox, file);
    assert_eq!(
        ran.stdout,
        "post 3\nlate posts: 1\n",
        "{ran:?}\n{}\n{}",
        output("post.err"),
        output("serve.err")
    );
    assert!(output("post.err").contains("do not post it again"), "{}", output("post.err"));
    assert!(!output("read_only.json").contains("\"delivered\""), "{}", output("read_only.json"));
}

#[test]
fn bare_mount_point_stays_untouched() {
    let sandbox = workspace();
    shared(&sandbox);
    let test = "bare_mount_point_stays_untouched";
    let Some(ran) = run_mounted(&sandbox, test, READ_ONLY_AT_FIRST) else { return };
    let expected =
        ["read-only 3", "unmounted 3", "watch 3", "below the mount point: ", "below the mount point: "];
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(
        lines,
        expected,
        "{ran:?}\n{}\n{}",
        output_file(&sandbox, "post.err"),
        output_file(&sandbox, "serve.err")
    );
}

#[test]
fn missing_root_is_temporary() {
    let sandbox = workspace();
    let root = shared(&sandbox);
    std::fs::remove_dir(&root).unwrap();
    let post = sandbox.run(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "x"]);
    assert!(post.code == Some(3) && post.stderr.contains("create the folder, mount it"), "{post:?}");
}

#[test]
fn serve_waits_for_an_unmounted_root() {
    let sandbox = workspace();
    let root = shared(&sandbox);
    let post = |text: &str| {
        sandbox.run(["channel", "post", "--agent", "codex", "--channel", "general", "--text", text])
    };
    post("before").ok();
    let aside = sandbox.path().join("aside");
    files::rename(&root, &aside);
    std::fs::create_dir(&root).unwrap();
    let mut serve = sandbox.serve();
    let sent = sandbox.run(["send", "#general", "while it was away", "--from", "claude"]);
    assert_eq!(sent.code, Some(3), "{sent:?}");
    assert!(std::fs::read_dir(&root).unwrap().next().is_none(), "nothing lies below the mount point");
    std::fs::remove_dir(&root).unwrap();
    files::rename(&aside, &root);
    test_support::poll::until("the folder to be watched again", || {
        (post("after").code == Some(0)).then_some(())
    });
    assert!(serve.terminate().success());
    assert!(
        serve.errors().contains("the channels folder cannot be used; the channels wait for it"),
        "{}",
        serve.errors()
    );
    let texts: Vec<_> =
        super::messages(&sandbox).iter().map(|message| message["content"]["text"].clone()).collect();
    assert!(texts.contains(&json!("before")) && texts.contains(&json!("after")), "{texts:?}");
}

#[test]
fn replaced_folder_needs_acceptance_by_person() {
    let sandbox = workspace();
    let root = shared(&sandbox);
    assert_eq!(sandbox.ok(["channel", "root"]), root.display().to_string());
    std::fs::remove_dir_all(root.join("signals")).unwrap();
    let refused = sandbox.run(["channel", "root"]);
    assert!(refused.code == Some(3) && refused.stderr.contains("channel root --accept"), "{refused:?}");
    assert_eq!(sandbox.run(["channel", "root", "--accept"]).code, Some(4), "there is no person to ask");
    sandbox.ok(["channel", "root", "--accept", "--yes"]);
    sandbox.ok(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "here"]);
    assert_eq!(super::messages(&sandbox).len(), 1);
}

#[test]
fn unmounted_root_makes_watchers_unknown() {
    let sandbox = workspace();
    let root = shared(&sandbox);
    let mut watch = sandbox.start(["watch", "--agent", "qc-1", "--channel", "general", "--", "cat"]);
    assert_eq!(watch.line(), "qc-1 watches #general. Stop with Ctrl-C.");
    assert!(watch.terminate().success());
    assert_eq!(sandbox.json(["who", "qc-1"])[0]["presence"], "offline", "it said goodbye");
    files::rename(&root, sandbox.path().join("aside"));
    std::fs::create_dir(&root).unwrap();
    let sent = sandbox.run(["send", "qc-1", "are you there?"]);
    assert!(sent.stderr.contains("qc-1: queued\n") && !sent.stderr.contains("offline"), "{sent:?}");
    assert_eq!(sandbox.json(["who", "qc-1"])[0]["presence"], "unknown");
    let presence = |agent: &str| {
        let agents = sandbox.json(["agents"]);
        agents.iter().find(|known| known["name"] == agent).unwrap()["presence"].clone()
    };
    assert_eq!((presence("qc-1"), presence("codex")), ("unknown".into(), "offline".into()));
}
