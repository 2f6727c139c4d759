//! A process that may be killed at any moment: a session over MCP, which reconnects, or a single command.

use std::collections::VecDeque;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_support::mcp::REVISION;
use test_support::{RunOutput, Running, Sandbox, poll};

/// The process of a session, while it may be killed or terminated.
#[derive(Default)]
pub(super) struct Target(Mutex<Standing>);

#[derive(Default)]
struct Standing {
    process: Option<Pid>,
    /// True if the session should close the process's stdin.
    is_asked_to_end: bool,
}

impl Target {
    /// Kills it, unless it is just being replaced.
    pub(super) fn kill(&self) -> bool {
        // While the id is stored here the process has not been reaped, so the id cannot have been reused.
        let process = self.0.lock().unwrap().process;
        process.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok())
    }

    /// Requests a clean end of the session, unless it is just being replaced. It is then not killed any more.
    pub(super) fn request_end(&self) -> bool {
        let mut session = self.0.lock().unwrap();
        session.is_asked_to_end |= session.process.take().is_some();
        session.is_asked_to_end
    }

    fn set(&self, process: Option<u32>) {
        let process = process.and_then(|id| Pid::from_raw(i32::try_from(id).unwrap()));
        *self.0.lock().unwrap() = Standing { process, is_asked_to_end: false };
    }

    /// Runs a program to its end, which may be a kill.
    pub(super) fn run(&self, command: &mut Command) -> RunOutput {
        let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        self.set(Some(child.id()));
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (mut stdout, mut stderr) = (String::new(), String::new());
        std::thread::scope(|scope| {
            scope.spawn(|| err.read_to_string(&mut stderr).unwrap());
            out.read_to_string(&mut stdout).unwrap();
        });
        self.set(None);
        RunOutput { code: child.wait().unwrap().code(), stdout, stderr }
    }
}

/// One session of an agent.
pub(super) struct Session<'s> {
    running: Running,
    target: &'s Target,
    is_ending: bool,
    last: u64,
    /// Received lines that were not processed yet.
    kept: VecDeque<String>,
}

/// Result of receiving for a while.
pub(super) enum Received {
    /// The answer to a request: the tool's data, or its error.
    Answer(u64, Result<Value, String>),
    Nothing,
    /// The process has ended.
    Ended,
}

impl<'s> Session<'s> {
    /// Starts a process and registers the agent; `None` if it is killed meanwhile.
    pub(super) fn open(sandbox: &Sandbox, agent: &str, target: &'s Target) -> Option<Self> {
        let running = Running::start_with_stdin(&mut sandbox.session(["mcp"]));
        target.set(Some(running.id()));
        let mut session = Self { running, target, is_ending: false, last: 0, kept: VecDeque::new() };
        let about = json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "soak", "version": "1" } });
        let id = session.request("initialize", &about);
        session.answer(id)?.ok()?;
        session.send_line(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        // The server may not have detected the end of the previous session yet.
        let registered = poll::within(poll::TIMEOUT, || {
            let id = session.call("register_chat_agent", &json!({ "name": agent, "interface": "soak" }));
            match session.answer(id) {
                None => Some(None),
                Some(Ok(_)) => Some(Some(())),
                Some(Err(_)) => None,
            }
        });
        registered.unwrap_or_else(|| panic!("{agent} has no session: {}", session.running.errors()))?;
        Some(session)
    }

    fn send_line(&mut self, message: &Value) {
        // An ended process is detected at the next read.
        let _ = self.running.write_line(&message.to_string());
    }

    fn request(&mut self, method: &str, params: &Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.send_line(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    /// Starts a tool call.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Receives an answer, for a while.
    pub(super) fn receive(&mut self, limit: Duration) -> Received {
        let mut lines = Vec::new();
        let is_gone = self.kept.is_empty() && self.running.lines_until(Instant::now() + limit, &mut lines);
        self.kept.extend(lines);
        let Some(line) = self.kept.pop_front() else {
            return if is_gone { Received::Ended } else { Received::Nothing };
        };
        let response: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let Some(id) = response["id"].as_u64().filter(|_| response.get("method").is_none()) else {
            return Received::Nothing;
        };
        let result = &response["result"];
        let text = || result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
        Received::Answer(
            id,
            match response.get("error") {
                Some(error) => Err(error.to_string()),
                None if result["isError"] == true => Err(text()),
                None => Ok(result["structuredContent"].clone()),
            },
        )
    }

    /// Waits for one answer; `None` if the process has ended.
    fn answer(&mut self, wanted: u64) -> Option<Result<Value, String>> {
        poll::until(&format!("an answer; {}", self.running.errors()), || {
            match self.receive(Duration::from_millis(100)) {
                Received::Answer(id, answer) if id == wanted => Some(Some(answer)),
                Received::Ended => Some(None),
                Received::Answer(..) | Received::Nothing => None,
            }
        })
    }

    /// Closes its stdin if its end was requested. Its remaining output is still read.
    pub(super) fn end_if_requested(&mut self) {
        if !self.is_ending && self.target.0.lock().unwrap().is_asked_to_end {
            self.is_ending = true;
            self.running.close_stdin();
        }
    }

    pub(super) fn is_ending(&self) -> bool {
        self.is_ending
    }

    /// Checks that an ended process was killed or ended with success.
    pub(super) fn must_have_ended_well(&mut self) {
        if self.is_ending {
            let status = self.running.wait();
            assert!(status.success(), "{status}: {}", self.running.errors());
        }
    }

    /// Ends it as a client does.
    pub(super) fn close(mut self) {
        self.target.set(None);
        self.is_ending = true;
        self.running.close_stdin();
        self.must_have_ended_well();
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.target.set(None);
    }
}
