//! Sandbox: a separate folder for each test, in which the binary runs.

use std::fmt::Write as _;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use serde_json::Value;
use tempfile::TempDir;

use crate::process::{Running, command};
use crate::redact::Redactor;
use crate::{files, poll};

/// Shell script that starts a server on the script's stdin and stdout, while the shell itself reads from /dev/null.
///
/// A signal that asks the shell to end is forwarded to the server. If the shell is killed, the server is killed as well
/// where the system supports this. The exit code of the shell is that of the server.
const CLIENT: &str = r#"exec 3<&0 </dev/null
if command -v setpriv >/dev/null; then set -- setpriv --pdeathsig KILL -- "$@"; fi
"$@" <&3 3<&- &
server=$!
exec 3<&- >/dev/null
trap 'kill -TERM $server' TERM INT HUP
wait $server; code=$?
while kill -0 $server 2>/dev/null; do wait $server; code=$?; done
exit $code"#;

/// A temporary folder, with or without a workspace in it, and the binary under test.
pub struct Sandbox {
    _folder: TempDir,
    binary: PathBuf,
    path: PathBuf,
    home: PathBuf,
    redactor: Mutex<Redactor>,
}

/// Output and exit code of a run of the binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutput {
    /// The exit code; `None` if a signal ended the process.
    pub code: Option<i32>,
    /// Complete output on stdout.
    pub stdout: String,
    /// Complete output on stderr.
    pub stderr: String,
}

impl Sandbox {
    /// Creates an empty folder.
    pub fn bare(binary: impl Into<PathBuf>) -> Self {
        Self::within(binary, TempDir::with_prefix("switchboard-it-").unwrap())
    }

    /// Creates an empty folder below `parent`.
    pub fn in_folder(binary: impl Into<PathBuf>, parent: &Path) -> Self {
        Self::within(binary, TempDir::with_prefix_in("switchboard-it-", parent).unwrap())
    }

    fn within(binary: impl Into<PathBuf>, folder: TempDir) -> Self {
        let root = folder.path().canonicalize().unwrap();
        let (path, home) = (root.join("project"), root.join("home"));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::create_dir_all(&home).unwrap();
        let words = [(path.to_str().unwrap(), "project"), (root.to_str().unwrap(), "sandbox")];
        let redactor = Mutex::new(Redactor::new(&words));
        Self { _folder: folder, binary: binary.into(), path, home, redactor }
    }

    /// Creates a folder with a workspace and these agents.
    pub fn with_agents(binary: impl Into<PathBuf>, agents: &[&str]) -> Self {
        let sandbox = Self::bare(binary);
        sandbox.ok([&["init"], agents].concat());
        sandbox
    }

    /// Copies the folder and adopts the workspace for the copy's user.
    #[must_use]
    pub fn copy(&self) -> Self {
        let copy = self.copy_from_elsewhere();
        copy.ok(["adopt", "--yes"]);
        copy
    }

    /// Copies the folder for a user with another home, without adopting the workspace.
    #[must_use]
    pub fn copy_from_elsewhere(&self) -> Self {
        let copy = Self::bare(&self.binary);
        files::copy_tree(&self.path, &copy.path);
        copy
    }

    /// Returns the folder that contains `.switchboard/`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path below `.switchboard/`.
    pub fn file(&self, below: &str) -> PathBuf {
        self.path.join(".switchboard").join(below)
    }

    /// Returns the home folder of the user who runs the binary.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Writes the user's settings file.
    pub fn configure_user(&self, settings: &str) {
        let folder = self.home.join(".config/switchboard");
        std::fs::create_dir_all(&folder).expect("a folder for settings");
        files::put(folder.join("config.json"), settings);
    }

    /// Returns a command that runs the binary in the folder.
    ///
    /// The command has a separate home, no agent name, and a port that the system chooses.
    pub fn command<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = command(&self.binary);
        command.current_dir(&self.path).env("HOME", &self.home).env("SWITCHBOARD_PORT", "0");
        command.args(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        command
    }

    /// Returns a command for an MCP server whose client is a shell.
    ///
    /// Commands of a program that holds a session count as an agent's. The shell in between ensures that the test
    /// itself holds no session.
    pub fn session<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut shell = command("sh");
        shell.current_dir(&self.path).env("HOME", &self.home).env("SWITCHBOARD_PORT", "0");
        shell.args(["-c", CLIENT, "client"]).arg(&self.binary);
        shell.args(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        shell
    }

    /// Runs the binary until it exits.
    pub fn run<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> RunOutput {
        RunOutput::of(&mut self.command(args))
    }

    /// Runs the binary as an agent.
    pub fn run_as<S: AsRef<str>>(&self, agent: &str, args: impl IntoIterator<Item = S>) -> RunOutput {
        RunOutput::of(self.command(args).env("SWITCHBOARD_AGENT_NAME", agent))
    }

    /// Runs the binary, which must succeed, and returns its stdout without the last newline.
    pub fn ok<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> String {
        self.run(args).ok()
    }

    /// Runs the binary with `--json`; returns the parsed lines of its stdout.
    pub fn json<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Vec<Value> {
        let ran = RunOutput::of(self.command(args).arg("--json"));
        ran.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Sends a message, which must succeed; returns its native id.
    pub fn send(&self, from: &str, to: &str, text: &str) -> String {
        self.run_as(from, ["send", to, text]).ok()
    }

    /// Starts the binary, which then runs alongside the test.
    pub fn start<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(&mut self.command(args))
    }

    /// Starts `serve` and waits until it reports that it is ready.
    ///
    /// It listens on a port that the system chooses, because many tests run at once.
    pub fn serve(&self) -> Running {
        let serve = self.start(["serve", "--port", "0"]);
        let line = serve.line();
        assert!(line.starts_with("Serving "), "{line}");
        serve
    }

    /// Drops two files for `codex`, one after the other, and waits until both are ingested.
    ///
    /// The first scan of `serve` is part of its start; the second file shows that the start is complete.
    pub fn deliver_two_files(&self) {
        for number in 1..=2 {
            let id = format!("msg_176300000000{number}_start");
            self.drop_file(&id, "claude", "codex", &id);
            let receipt = self.file(&format!("outbox/claude/{id}.receipt.json"));
            poll::until("a dropped file to be taken in", || receipt.exists().then_some(()));
        }
    }

    /// Renders the output of a run for a snapshot.
    pub fn shown(&self, ran: &RunOutput) -> String {
        let code = ran.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        let mut text = format!("exit {code}\n");
        for (name, content) in [("stdout", &ran.stdout), ("stderr", &ran.stderr)] {
            if !content.is_empty() {
                writeln!(text, "--- {name}\n{}", content.trim_end_matches('\n')).unwrap();
            }
        }
        self.redact(&text)
    }

    /// Runs the binary and renders its output for a snapshot.
    pub fn show<S: AsRef<str>>(&self, args: impl IntoIterator<Item = S>) -> String {
        self.shown(&self.run(args))
    }

    /// Runs the binary as an agent and renders its output for a snapshot.
    pub fn show_as<S: AsRef<str>>(&self, agent: &str, args: impl IntoIterator<Item = S>) -> String {
        self.shown(&self.run_as(agent, args))
    }

    /// Redacts everything in a text that is specific to this run.
    pub fn redact(&self, text: &str) -> String {
        self.redactor.lock().unwrap().redact(text)
    }

    /// Puts a message file into a mailbox, as another program would.
    pub fn drop_file(&self, id: &str, sender: &str, recipient: &str, payload: &str) -> PathBuf {
        let path = self.file(&format!("inbox/{recipient}/{id}.json"));
        files::put_by_rename(&path, message_file(id, sender, recipient, payload, None));
        path
    }
}

/// Builds a message file as another program would write it.
pub fn message_file(
    id: &str,
    sender: &str,
    recipient: &str,
    payload: &str,
    created_at: Option<&str>,
) -> String {
    let mut file = serde_json::json!({
        "id": id, "action": "delegate_task", "sender": sender, "recipient": recipient, "payload": payload,
    });
    if let Some(at) = created_at {
        file["createdAt"] = at.into();
    }
    serde_json::to_string_pretty(&file).unwrap()
}

impl RunOutput {
    /// Runs a command until it exits.
    pub fn of(command: &mut Command) -> Self {
        Self::with_input(command, b"")
    }

    /// Runs a command with `input` on stdin until it exits.
    pub fn with_input(command: &mut Command, input: &[u8]) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            // The error is ignored, because a program may exit without reading its input.
            scope.spawn(move || drop(stdin.write_all(input)));
            child.wait_with_output().unwrap()
        });
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    /// Returns the stdout of a run without the last newline; panics if the run failed.
    pub fn ok(&self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self.stdout.trim_end_matches('\n').to_owned()
    }
}
