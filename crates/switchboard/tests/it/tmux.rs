//! Mail that `serve` types into a tmux pane, with a real tmux on its own socket.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use test_support::process::command;
use test_support::{Running, Sandbox, files, poll, tools};

use crate::workspace;

/// A tmux server that ends when this value is dropped.
struct Tmux {
    sockets: tempfile::TempDir,
}

impl Tmux {
    /// Starts a server with one pane that runs `program`; `None` without tmux.
    fn start(test: &str, folder: &Path, program: &str) -> Option<Self> {
        if let Err(reason) = tools::run(command("tmux").arg("-V")) {
            tools::skip(test, &reason);
            return None;
        }
        let tmux = Self { sockets: tempfile::TempDir::new().unwrap() };
        let mut new = tmux.command();
        new.current_dir(folder).args([
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-s",
            "work",
            "-x",
            "80",
            "-y",
            "24",
        ]);
        tools::run(new.args(["sh", "-c", program])).unwrap();
        Some(tmux)
    }

    fn command(&self) -> Command {
        let mut tmux = command("tmux");
        tmux.env("TMUX_TMPDIR", self.sockets.path()).env("TERM", "xterm").env("LANG", "C.UTF-8");
        tmux
    }

    fn query(&self, args: &[&str]) -> String {
        tools::run(self.command().args(args)).unwrap().trim().to_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = tools::run(self.command().arg("kill-server"));
    }
}

/// Shows a question that acts on one key and records the keys; then shows an input field.
const DIALOG: &str = "stty raw -echo; printf '\\033[?2004hRun it? (y/n) '; head -c 1 > key; \
    printf '\\r\\n\\033[?2004l$ '; stty sane; exec cat > typed";

#[test]
fn pane_with_a_question_gets_no_key() {
    let sandbox = workspace();
    let Some(tmux) = Tmux::start("tmux: a question", sandbox.path(), DIALOG) else { return };
    let pane = tmux.query(&["list-panes", "-F", "#{pane_id}"]);
    register(&sandbox, &pane, &tmux.query(&["list-panes", "-F", "#{pane_pid}"]));
    let _serve = serve(&sandbox, &tmux);
    let id = execute(&sandbox, "y");
    let reason = poll::until("a reason", || {
        sandbox.json(["receipt", &id])[0]["terminal"]["reason"].as_str().map(str::to_owned)
    });
    assert_eq!(reason, "the program shows a question");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("key")).unwrap(), "");
    tmux.query(&["send-keys", "-t", &pane, "n"]);
    result(&sandbox, &id, "executed");
    assert_eq!(std::fs::read_to_string(sandbox.path().join("key")).unwrap(), "n");
}

/// Registers a terminal in a pane, as the editor or script that owns it does.
fn register(sandbox: &Sandbox, pane: &str, pid: &str) {
    let mut state = files::read_json_object(&sandbox.file("state.json")).unwrap();
    let pid: u32 = pid.parse().unwrap();
    state["terminals"]["codex"] =
        json!({ "pid": pid, "purpose": "coding", "pane": pane, "status": "active" });
    files::put_by_rename(sandbox.file("state.json"), state.to_string());
}

/// Starts `serve` for a workspace with a registered pane, and waits until it serves the pane.
fn serve(sandbox: &Sandbox, tmux: &Tmux) -> Running {
    let config = json!({ "terminals": { "tmux": true } });
    sandbox.configure_user(&config.to_string());
    let old = "msg_1763000000000_old";
    let dropped =
        json!({ "id": old, "action": "execute", "sender": "claude", "recipient": "codex", "payload": "old" });
    files::put_by_rename(sandbox.file(&format!("inbox/codex/{old}.json")), dropped.to_string());
    let mut serve = sandbox.command(["serve"]);
    let serve = Running::start(serve.env("TMUX_TMPDIR", tmux.sockets.path()));
    // The refusal of the old message shows that the terminal is served from now on.
    let receipt = result(sandbox, old, "refused");
    assert!(receipt["error"].as_str().unwrap().starts_with("it was dropped as a file"), "{receipt}");
    serve
}

fn result(sandbox: &Sandbox, id: &str, status: &str) -> Value {
    let path = sandbox.file(&format!("outbox/claude/{id}.{status}.receipt.json"));
    poll::until(&format!("{id} to be {status}"), || files::read_json_object(&path))
}

fn execute(sandbox: &Sandbox, text: &str) -> String {
    sandbox.run_as("claude", ["send", "codex", text, "--kind", "execute"]).ok()
}

#[test]
fn pane_gets_text_once_and_literally() {
    let sandbox = workspace();
    let scribe = "while IFS= read -r line; do printf '%s\\n' \"$line\" >> typed; done";
    let Some(tmux) = Tmux::start("tmux: a pane", sandbox.path(), scribe) else { return };
    let pane = tmux.query(&["list-panes", "-F", "#{pane_id}"]);
    register(&sandbox, &pane, &tmux.query(&["list-panes", "-F", "#{pane_pid}"]));
    let mut serve = serve(&sandbox, &tmux);
    let texts = ["-t", "Enter", "C-c", "; kill-server", "#{pane_id} $(date)", "two\nlines", "Grüße"];
    let ids: Vec<String> = texts
        .iter()
        .map(|text| sandbox.run_as("claude", ["send", "codex", "--kind", "execute", "--", text]).ok())
        .collect();
    for id in &ids {
        result(&sandbox, id, "executed");
    }
    let typed = poll::until("all lines", || {
        let typed = std::fs::read_to_string(sandbox.path().join("typed")).ok()?;
        (typed.lines().count() >= texts.len()).then_some(typed)
    });
    let expected = ["-t", "Enter", "C-c", "; kill-server", "#{pane_id} $(date)", "two lines", "Grüße"];
    assert_eq!(typed.lines().collect::<Vec<_>>(), expected);
    assert_eq!(tmux.query(&["list-buffers"]), "");
    assert_eq!(serve.terminate().code(), Some(0));
}

#[test]
fn unusable_pane_fails_with_reason() {
    let sandbox = workspace();
    let Some(tmux) = Tmux::start("tmux: no pane", sandbox.path(), "exec cat") else { return };
    let pid = tmux.query(&["list-panes", "-F", "#{pane_pid}"]);
    register(&sandbox, "%99", &pid);
    let _serve = serve(&sandbox, &tmux);
    let id = execute(&sandbox, "x");
    let error = result(&sandbox, &id, "failed")["error"].as_str().unwrap().to_owned();
    assert!(error.contains("pane"), "{error}");
    register(&sandbox, "work:0.0", &pid);
    tmux.query(&["copy-mode", "-t", "work:0.0"]);
    let id = execute(&sandbox, "x");
    let reason = poll::until("a reason", || {
        sandbox.json(["receipt", &id])[0]["terminal"]["reason"].as_str().map(str::to_owned)
    });
    assert_eq!(reason, "the program does not take input now");
    tmux.query(&["send-keys", "-t", "work:0.0", "-X", "cancel"]);
    result(&sandbox, &id, "executed");
    // No process has this id: another process may be in the pane by now.
    register(&sandbox, "work:0.0", &i32::MAX.to_string());
    let id = execute(&sandbox, "x");
    let error = result(&sandbox, &id, "failed")["error"].as_str().unwrap().to_owned();
    assert_eq!(error, "the process that was registered for this terminal has ended");
}

#[test]
fn pane_of_cloned_state_gets_no_key() {
    let sandbox = workspace();
    let Some(tmux) = Tmux::start("tmux: a cloned state", sandbox.path(), "exec cat > typed") else { return };
    let (pane, pid) =
        (tmux.query(&["list-panes", "-F", "#{pane_id}"]), tmux.query(&["list-panes", "-F", "#{pane_pid}"]));
    let name = |terminal: Value| {
        let mut state = files::read_json_object(&sandbox.file("state.json")).unwrap();
        state["terminals"]["codex"] = terminal;
        files::put_by_rename(sandbox.file("state.json"), state.to_string());
    };
    // A repository can contain a pane and any process id, but not that of the pane's process.
    let us = std::process::id();
    name(json!({ "purpose": "coding", "pane": pane, "status": "active" }));
    let _serve = serve(&sandbox, &tmux);
    for terminal in [
        json!({ "pane": pane }),
        json!({ "pane": pane, "pid": null, "processStart": "1" }),
        json!({ "pane": pane, "pid": us }),
        json!({ "pane": pane, "pid": us, "external": true }),
        json!({ "pane": pane, "pid": 1 }),
        json!({ "pane": "work:0.0", "external": true }),
        json!({ "pane": pane, "pid": pid.parse::<u32>().unwrap(), "processStart": "1" }),
    ] {
        let mut named = terminal.clone();
        (named["purpose"], named["status"]) = (json!("coding"), json!("active"));
        name(named);
        let id = execute(&sandbox, "touch /tmp/typed");
        let error = result(&sandbox, &id, "failed")["error"].as_str().unwrap().to_owned();
        let says_why =
            error.contains("is not that of the process in state.json") || error.contains("has ended");
        assert!(says_why, "{terminal}: {error}");
    }
    assert_eq!(std::fs::read_to_string(sandbox.path().join("typed")).unwrap(), "");
}
