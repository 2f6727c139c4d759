//! Channels from outside: posts by many processes, killed watchers, presence, other doors.

mod archive;
mod config;
mod crowd;
mod detection;
mod mounts;
mod presence;
mod tampering;
mod verbs;
mod watching;

use serde_json::Value;
use test_support::{Sandbox, poll};

/// A program as a watcher's command: it records each run and prints the answer.
pub(crate) struct Program {
    path: std::path::PathBuf,
    runs: std::path::PathBuf,
}

impl Program {
    /// Creates a shell script; its input is stored in the file `prompt` in the same folder.
    pub(crate) fn new(sandbox: &Sandbox, name: &str, script: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        let path = sandbox.path().join(name);
        let runs = sandbox.path().join(format!("{name}.runs"));
        let text = format!("#!/bin/sh\necho run >> {}\n{script}\n", runs.display());
        test_support::files::put(&path, &text);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { path, runs }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub(crate) fn runs(&self) -> usize {
        std::fs::read_to_string(&self.runs).map_or(0, |runs| runs.lines().count())
    }
}

/// Posts to `general` and returns the id.
fn post(sandbox: &Sandbox, agent: &str, to: &str, text: &str) -> String {
    sandbox.ok(["channel", "post", "--agent", agent, "--channel", "general", "--to", to, "--text", text])
}

/// Returns the messages of `general`, in order.
fn messages(sandbox: &Sandbox) -> Vec<Value> {
    sandbox.json(["channel", "read", "--channel", "general", "--all"])
}

/// Waits for the answer to a message.
fn answer_to(sandbox: &Sandbox, id: &str) -> Value {
    let answer = || messages(sandbox).into_iter().find(|message| message["metadata"]["in_reply_to"] == id);
    poll::within(poll::TIMEOUT, answer).unwrap_or_else(|| {
        let log = std::fs::read_to_string(sandbox.file("logs/qc-1-watcher.log")).unwrap_or_default();
        panic!("no answer to {id}; the watcher says:\n{log}")
    })
}
