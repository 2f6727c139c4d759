//! HTTP clients of `serve`: a minimal HTTP/1.1 implementation, so that mostly the server is measured.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::{Value, json};
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::pipe::{TOO_LONG, answered, initialize, request};
use crate::program::shipped;

/// Running `switchboard serve` process.
pub(crate) struct Serve {
    child: Child,
    port: u16,
    token: String,
}

/// Connection for sequential requests.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    /// Headers that identify the sender, for every request.
    headers: String,
    session: Option<String>,
    last: u64,
}

/// Head of an HTTP response.
#[derive(Default)]
struct Head {
    status: u16,
    is_chunked: bool,
    length: usize,
    session: Option<String>,
}

/// Session over `/sse`: responses arrive on the stream, and requests use a separate connection.
pub(crate) struct SseClient {
    events: Connection,
    posts: Connection,
    endpoint: String,
    unread: String,
    last: u64,
}

impl Serve {
    /// Starts `serve` in a workspace and returns once it listens.
    pub(crate) async fn start(workspace: &Path) -> anyhow::Result<Self> {
        Self::start_with(workspace, |spawn| spawn).await
    }

    /// Starts `serve` like [`Self::start`], with further spawn options.
    pub(crate) async fn start_with(
        workspace: &Path,
        settle: impl FnOnce(Spawn) -> Spawn,
    ) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Listening {
            port: u16,
        }
        let spawn = Spawn::new(shipped()?).args(["--json", "serve", "--port", "0"]).cwd(workspace);
        let mut child = settle(spawn).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let mut output = BufReader::new(child.stdout_reader().context("no stdout")?);
        let mut line = String::new();
        timeout(TOO_LONG, output.read_line(&mut line)).await.context("`serve` says nothing")??;
        let Listening { port } = serde_json::from_str(&line).with_context(|| format!("said {line}"))?;
        let token = std::fs::read_to_string(workspace.join(".switchboard/auth_token"))?;
        Ok(Self { child, port, token: token.trim().to_owned() })
    }

    /// Returns the process id of `serve`.
    pub(crate) fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Opens a connection for an agent.
    pub(crate) async fn connect(&self, agent: &str) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let headers = format!(
            "Host: 127.0.0.1:{}\r\nAuthorization: Bearer {}\r\nswitchboard-agent: {agent}\r\n",
            self.port, self.token
        );
        Ok(Connection { stream: BufReader::new(stream), headers, session: None, last: 0 })
    }

    pub(crate) async fn close(mut self) -> anyhow::Result<()> {
        if let Some(pid) = i32::try_from(self.child.pid()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        timeout(TOO_LONG, self.child.wait()).await.context("`serve` does not end")??;
        Ok(())
    }
}

impl Connection {
    /// Starts an MCP session over `/mcp`.
    pub(crate) async fn start_session(&mut self) -> anyhow::Result<()> {
        self.exchange("initialize", &initialize()).await?;
        let note = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let (status, _) = self.post("/mcp", &note).await?;
        ensure!(status == 202, "status {status} for a notification");
        Ok(())
    }

    /// Calls a tool over `/mcp` and returns its result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<String> {
        self.exchange("tools/call", &json!({ "name": tool, "arguments": arguments })).await
    }

    /// Sends one request and returns the raw response.
    async fn exchange(&mut self, method: &str, params: &Value) -> anyhow::Result<String> {
        self.last += 1;
        let (status, body) = self.post("/mcp", &request(self.last, method, params)).await?;
        ensure!(status == 200, "status {status}: {body}");
        // The body is either an event stream with one response or the response alone.
        let data = body.lines().filter_map(|line| line.strip_prefix("data: ")).find(|data| !data.is_empty());
        let answer = data.unwrap_or(&body);
        let id = answered(answer)?;
        ensure!(id == self.last, "answer {id} to request {}", self.last);
        Ok(answer.to_owned())
    }

    async fn post(&mut self, path: &str, message: &Value) -> anyhow::Result<(u16, String)> {
        let body = message.to_string();
        let session = match &self.session {
            Some(session) => format!("Mcp-Session-Id: {session}\r\n"),
            None => String::new(),
        };
        let head = format!(
            "POST {path} HTTP/1.1\r\n{}{session}Content-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n",
            self.headers,
            body.len()
        );
        self.stream.write_all(format!("{head}{body}").as_bytes()).await?;
        let answer = timeout(TOO_LONG, self.answer()).await.context("the server does not answer")?;
        let (head, body) = answer?;
        self.session = head.session.or(self.session.take());
        Ok((head.status, body))
    }

    async fn answer(&mut self) -> anyhow::Result<(Head, String)> {
        let head = self.head().await?;
        let mut body = vec![0; head.length];
        self.stream.read_exact(&mut body).await?;
        let mut body = String::from_utf8(body)?;
        while head.is_chunked
            && let Some(chunk) = self.chunk().await?
        {
            body.push_str(&chunk);
        }
        Ok((head, body))
    }

    async fn head(&mut self) -> anyhow::Result<Head> {
        let status = self.line().await?;
        let status = status.split(' ').nth(1).context("no status")?.parse()?;
        let mut head = Head { status, ..Head::default() };
        loop {
            let line = self.line().await?;
            let Some((name, value)) = line.split_once(": ") else { return Ok(head) };
            match name.to_ascii_lowercase().as_str() {
                "transfer-encoding" => head.is_chunked = value.eq_ignore_ascii_case("chunked"),
                "content-length" => head.length = value.parse()?,
                "mcp-session-id" => head.session = Some(value.to_owned()),
                _ => {}
            }
        }
    }

    /// Reads one chunk of a chunked body; `None` after the last.
    async fn chunk(&mut self) -> anyhow::Result<Option<String>> {
        let length = usize::from_str_radix(&self.line().await?, 16)?;
        let mut chunk = vec![0; length + 2];
        self.stream.read_exact(&mut chunk).await?;
        chunk.truncate(length);
        Ok((length > 0).then(|| String::from_utf8(chunk)).transpose()?)
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let read = self.stream.read_line(&mut line).await?;
        ensure!(read > 0, "the connection was closed");
        Ok(line.trim_end().to_owned())
    }
}

impl SseClient {
    /// Opens a stream and starts an MCP session on it.
    pub(crate) async fn open(serve: &Serve, agent: &str) -> anyhow::Result<Self> {
        let (mut events, posts) = (serve.connect(agent).await?, serve.connect(agent).await?);
        let get = format!("GET /sse HTTP/1.1\r\n{}Accept: text/event-stream\r\n\r\n", events.headers);
        events.stream.write_all(get.as_bytes()).await?;
        let head = events.head().await?;
        ensure!(head.status == 200, "status {} for /sse", head.status);
        let mut client = Self { events, posts, endpoint: String::new(), unread: String::new(), last: 0 };
        client.endpoint = client.event().await?;
        client.ask("initialize", &initialize()).await?;
        client.answer().await?;
        client.notify(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(client)
    }

    /// Calls a tool without waiting; [`Self::answer`] waits for the result.
    pub(crate) async fn call(&mut self, tool: &str, arguments: &Value) -> anyhow::Result<()> {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments })).await
    }

    /// Waits for the response to the last request.
    pub(crate) async fn answer(&mut self) -> anyhow::Result<()> {
        let data = timeout(TOO_LONG, self.event()).await.context("no answer on the stream")??;
        let id = answered(&data)?;
        ensure!(id == self.last, "answer {id} to request {}", self.last);
        Ok(())
    }

    async fn ask(&mut self, method: &str, params: &Value) -> anyhow::Result<()> {
        self.last += 1;
        self.notify(&request(self.last, method, params)).await
    }

    async fn notify(&mut self, message: &Value) -> anyhow::Result<()> {
        let (status, body) = self.posts.post(&self.endpoint, message).await?;
        ensure!(status == 202, "status {status}: {body}");
        Ok(())
    }

    /// Reads the data of the next event.
    async fn event(&mut self) -> anyhow::Result<String> {
        loop {
            while let Some((event, rest)) = self.unread.split_once("\n\n") {
                let data = event.lines().find_map(|line| line.strip_prefix("data: ")).map(str::to_owned);
                let rest = rest.to_owned();
                self.unread = rest;
                if let Some(data) = data {
                    return Ok(data);
                }
            }
            match self.events.chunk().await? {
                Some(chunk) => self.unread.push_str(&chunk),
                None => bail!("the stream has ended"),
            }
        }
    }
}
