//! MCP client over pipes, which starts a server as an MCP host does.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

use crate::program::shipped;

/// Timeout: longer than any response that is not stuck.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(20);

/// Time limit for a server to exit after its stdin is closed.
const ENDING: Duration = Duration::from_secs(5);

/// MCP server to start.
#[derive(Debug, Clone)]
pub(crate) enum Server {
    /// `switchboard mcp` in a workspace.
    Ours {
        /// Agent for which the client is configured.
        agent: String,
        workspace: PathBuf,
    },
    /// The Node baseline, in its folder.
    Node { folder: PathBuf },
    /// `switchboard mcp` for a separate user, whose settings are in `home`.
    Settled { home: PathBuf, workspace: PathBuf },
    /// Any program that speaks MCP over stdio.
    Program { command: Vec<OsString>, folder: PathBuf },
}

/// Running server with the two pipes to it.
pub(crate) struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    line: String,
    last: u64,
}

/// The part of a response that identifies it and shows whether it succeeded.
#[derive(Deserialize)]
struct Answer {
    id: Option<u64>,
    result: Option<Outcome>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Outcome {
    #[serde(rename = "isError", default)]
    is_error: bool,
    #[serde(flatten)]
    _rest: IgnoredAny,
}

impl Server {
    pub(crate) fn ours(agent: &str, workspace: &Path) -> Self {
        Self::Ours { agent: agent.to_owned(), workspace: workspace.to_owned() }
    }

    fn spawn(&self) -> anyhow::Result<Spawn> {
        Ok(match self {
            Self::Ours { agent, workspace } => {
                Spawn::new(shipped()?).args(["--from", agent, "mcp"]).cwd(workspace)
            }
            Self::Node { folder } => Spawn::new("node").args(["server.mjs"]).cwd(folder),
            Self::Settled { home, workspace } => {
                Spawn::new(shipped()?).args(["mcp"]).cwd(workspace).env("HOME", home)
            }
            Self::Program { command, folder } => {
                let (program, args) = command.split_first().context("no program")?;
                Spawn::new(program).args(args).cwd(folder)
            }
        })
    }
}

impl Client {
    /// Starts a server, without a handshake.
    pub(crate) fn start(server: &Server) -> anyhow::Result<Self> {
        let spawn = server.spawn()?.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = spawn.spawn()?;
        let input = child.stdin_writer().context("no stdin")?;
        let output = BufReader::new(child.stdout_reader().context("no stdout")?);
        Ok(Self { child, input, output, line: String::new(), last: 0 })
    }

    /// Starts a server and an MCP session with it.
    pub(crate) async fn open(server: &Server) -> anyhow::Result<Self> {
        let mut client = Self::start(server)?;
        client.start_session().await?;
        Ok(client)
    }

    /// Starts the MCP session and lists the tools; returns the size of the tool list in bytes.
    pub(crate) async fn start_session(&mut self) -> anyhow::Result<usize> {
        self.request("initialize", &initialize()).await?;
        self.write(&line_of(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))).await?;
        self.request("tools/list", &json!({})).await?;
        Ok(self.line.len())
    }

    /// Calls a tool and waits for its result; returns the duration.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<Duration> {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments })).await
    }

    /// Calls a tool `count` times, with up to `in_flight` calls at a time; returns the total duration.
    pub(crate) async fn calls(
        &mut self,
        tool: &str,
        arguments: &Value,
        in_flight: usize,
        count: usize,
    ) -> anyhow::Result<Duration> {
        let params = json!({ "name": tool, "arguments": arguments });
        let began = Instant::now();
        let mut next_id = 0;
        for answered in 0..count {
            while next_id < count && next_id - answered < in_flight {
                let line = self.next_request("tools/call", &params);
                self.write(&line).await?;
                next_id += 1;
            }
            self.read_answer().await?;
        }
        Ok(began.elapsed())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Ends the session and the server.
    pub(crate) async fn close(self) -> anyhow::Result<()> {
        drop(self.input);
        self.child.stop(ENDING).await?;
        Ok(())
    }

    async fn request(&mut self, method: &str, params: &Value) -> anyhow::Result<Duration> {
        let line = self.next_request(method, params);
        let began = Instant::now();
        self.write(&line).await?;
        let id = self.read_answer().await?;
        let time = began.elapsed();
        ensure!(id == self.last, "answer {id} to request {}", self.last);
        Ok(time)
    }

    fn next_request(&mut self, method: &str, params: &Value) -> Vec<u8> {
        self.last += 1;
        line_of(&request(self.last, method, params))
    }

    async fn write(&mut self, line: &[u8]) -> anyhow::Result<()> {
        Ok(self.input.write_all(line).await?)
    }

    /// Waits for the next response, leaves it in `self.line` and returns its id.
    async fn read_answer(&mut self) -> anyhow::Result<u64> {
        loop {
            self.line.clear();
            let read = timeout(TOO_LONG, self.output.read_line(&mut self.line));
            let read = read.await.context("the server does not answer")??;
            ensure!(read > 0, "the server has ended");
            if !is_news(&self.line) {
                return answered(&self.line);
            }
        }
    }
}

/// Returns true for a request or notification from the server.
fn is_news(json: &str) -> bool {
    #[derive(Deserialize)]
    struct News {
        #[serde(rename = "method")]
        _method: IgnoredAny,
    }
    serde_json::from_str::<News>(json).is_ok()
}

/// Returns the id of a response, or an error if the response reports a failure.
pub(crate) fn answered(json: &str) -> anyhow::Result<u64> {
    let answer: Answer = serde_json::from_str(json).with_context(|| format!("no answer: {json}"))?;
    let refused = answer.error.is_some() || answer.result.is_none_or(|result| result.is_error);
    ensure!(!refused, "the server refused: {json}");
    answer.id.context("an answer without an id")
}

/// Builds a JSON-RPC request.
pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Builds the parameters of `initialize`.
pub(crate) fn initialize() -> Value {
    json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "bench", "version": env!("CARGO_PKG_VERSION") },
    })
}

fn line_of(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}
