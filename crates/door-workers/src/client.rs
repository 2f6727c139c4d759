//! The other end: a client of the router, for the command line and for tests.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;
use switchboard_sys::owner::Owner;
use switchboard_sys::platform;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::RouterError;
use crate::lines::{Line, Lines};
use crate::wire::{EventLine, PROTOCOL, stamp};

/// The file that leads to the router of a workspace.
const FILE: &str = "router.json";

/// Larger than any signpost.
const LIMIT: u64 = 64 << 10;

/// The longest line that is read: a list of many jobs.
const LINE: usize = 64 << 20;

/// Time limit for the connection and the answer to `hello`. A router that runs answers within milliseconds.
const HELLO: Duration = Duration::from_secs(2);

/// Further time for a process that is busy, not stopped: a loaded machine can keep it from a processor for seconds.
const BUSY_HELLO: Duration = Duration::from_secs(8);

/// Where the router of a workspace listens. Readable by its owner alone, because of the token.
#[derive(Clone, Serialize, Deserialize)]
pub struct Signpost {
    /// `unix:PATH` or `IP:PORT`.
    pub listen: String,
    /// What to say hello with, where it listens on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The process.
    pub pid: u32,
    /// The same process with its host and start, which tells it from a later one with the same pid.
    #[serde(default)]
    pub owner: String,
}

impl std::fmt::Debug for Signpost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signpost")
            .field("listen", &self.listen)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

impl Signpost {
    /// The signpost of this process.
    pub fn new(listen: String, token: Option<String>) -> Self {
        let owner = Owner::this_process();
        Self { listen, token, pid: owner.pid(), owner: owner.to_string() }
    }

    /// Puts it up.
    pub fn write(&self, folder: &Dir) -> Result<(), RouterError> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from)?;
        Ok(folder.replace(FILE, &text, 0o600)?)
    }

    /// Takes it down, where it is still ours.
    pub fn remove(&self, folder: &Dir) -> Result<(), RouterError> {
        if Self::read(folder)?.is_some_and(|found| found.pid == self.pid) {
            folder.remove(FILE)?;
        }
        Ok(())
    }

    /// Reads it where it can be believed: a file that only its owner, who is this user, can read, of a process that
    /// runs, with an address that only this machine reaches. Nothing where there is none or its process is gone.
    ///
    /// A file that came with a repository would otherwise have prompts and variables sent wherever it says.
    fn read_believed(folder: &Dir) -> Result<Option<Self>, RouterError> {
        let Some(found) = folder.read(FILE, LIMIT)? else { return Ok(None) };
        let refuse = |problem: &str| Err(RouterError::NotBelieved { problem: problem.to_owned() });
        if found.stamp.uid != rustix::process::geteuid().as_raw() {
            return refuse("it belongs to another user");
        }
        if folder.mode(FILE)?.is_none_or(|mode| mode & 0o777 != 0o600) {
            return refuse("its mode is not 0600");
        }
        let Ok(signpost) = serde_json::from_slice::<Self>(&found.bytes) else { return Ok(None) };
        let Ok(owner) = signpost.owner.parse::<Owner>() else {
            return refuse("it does not say which process wrote it");
        };
        if owner.pid() != signpost.pid || !owner.is_on_this_host() {
            return refuse("no process of this machine wrote it");
        }
        if owner.is_gone() {
            return Ok(None);
        }
        if signpost.listen.starts_with("unix:") || is_loopback(&signpost.listen) {
            return Ok(Some(signpost));
        }
        refuse("its address is neither a socket nor on this machine")
    }

    /// Reads it; nothing where there is none.
    pub fn read(folder: &Dir) -> Result<Option<Self>, RouterError> {
        let found = folder.read(FILE, LIMIT)?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.bytes).ok()))
    }
}

/// An event as it came.
#[derive(Debug, Clone)]
pub struct Received {
    /// Its place in the log.
    pub seq: u64,
    /// What it is.
    pub event: String,
    /// When it was written.
    pub timestamp: String,
    /// What it says.
    pub data: Value,
    /// The line itself.
    pub line: String,
}

/// A connection to a router.
pub struct Client {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    lines: Lines,
    /// Read while something else was waited for.
    passed: VecDeque<Received>,
    next: u64,
    prefix: String,
}

impl Client {
    /// Connects to the router of a workspace by its folder and says hello, as an agent where one is named.
    ///
    /// The kernel accepts connections to a stopped process, so only the answer shows that the router runs.
    pub async fn connect(folder: &Dir, agent: Option<&str>) -> Result<Self, RouterError> {
        let signpost = Signpost::read_believed(folder)?.ok_or(RouterError::NotRunning)?;
        let mut opening = pin!(Self::open(&signpost, agent));
        if let Ok(opened) = timeout(HELLO, &mut opening).await {
            return opened;
        }
        let is_stopped = platform::is_process_stopped(signpost.pid);
        if is_stopped == Some(false)
            && let Ok(opened) = timeout(BUSY_HELLO, opening).await
        {
            return opened;
        }
        Err(RouterError::Silent { pid: signpost.pid })
    }

    async fn open(signpost: &Signpost, agent: Option<&str>) -> Result<Self, RouterError> {
        let mut client = Self::to_process(signpost).await?;
        let mut hello = json!({});
        if let Some(token) = &signpost.token {
            hello["token"] = json!(token);
        }
        if let Some(agent) = agent {
            hello["agent"] = json!(agent);
        }
        client.ask("hello", &hello).await?;
        Ok(client)
    }

    /// Connects where a signpost says, and only to the process that put it up, as far as the system tells.
    async fn to_process(signpost: &Signpost) -> Result<Self, RouterError> {
        let Some(path) = signpost.listen.strip_prefix("unix:") else {
            return Self::to(&signpost.listen).await.map_err(|_| RouterError::NotRunning);
        };
        let connected = switchboard_sys::socket::connect(Path::new(path)).await;
        let stream = connected.map_err(|error| match error.kind() {
            // The backlog is full: the process accepts no connections.
            ErrorKind::WouldBlock => RouterError::Silent { pid: signpost.pid },
            _ => RouterError::NotRunning,
        })?;
        let listener = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
        if listener.is_some_and(|pid| pid != signpost.pid) {
            let problem = "another process listens on its socket".to_owned();
            return Err(RouterError::NotBelieved { problem });
        }
        let (reader, writer) = stream.into_split();
        Ok(Self::on(reader, writer))
    }

    /// Connects to an address, and says nothing yet.
    pub async fn to(address: &str) -> Result<Self, RouterError> {
        if let Some(path) = address.strip_prefix("unix:") {
            let (reader, writer) = switchboard_sys::socket::connect(Path::new(path)).await?.into_split();
            return Ok(Self::on(reader, writer));
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self::on(reader, writer))
    }

    /// A client on any two streams.
    pub fn on(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            lines: Lines::new(LINE),
            passed: VecDeque::new(),
            next: 0,
            prefix: format!("{:08x}", fastrand::u32(..)),
        }
    }

    /// Sends a command; returns its id.
    pub async fn send(&mut self, command: &str, payload: &Value) -> Result<String, RouterError> {
        self.next += 1;
        let request_id = format!("{}-{}", self.prefix, self.next);
        let line = command_line(command, &request_id, payload);
        self.write(line.as_bytes()).await?;
        Ok(request_id)
    }

    /// Sends bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), RouterError> {
        self.writer.write_all(bytes).await?;
        Ok(self.writer.flush().await?)
    }

    /// Sends a command and waits for the first event that answers it; what else comes meanwhile is kept.
    pub async fn ask(&mut self, command: &str, payload: &Value) -> Result<Received, RouterError> {
        let request_id = self.send(command, payload).await?;
        let mut passed = VecDeque::new();
        let answer = loop {
            let event = self.next().await?;
            if event.data.get("request_id").and_then(Value::as_str) == Some(&request_id) {
                break event;
            }
            passed.push_back(event);
        };
        passed.append(&mut self.passed);
        self.passed = passed;
        if answer.event == "command_rejected" {
            return Err(RouterError::rejected(&answer.data));
        }
        Ok(answer)
    }

    /// The next event. Can be cancelled and called again.
    pub async fn next(&mut self) -> Result<Received, RouterError> {
        if let Some(event) = self.passed.pop_front() {
            return Ok(event);
        }
        loop {
            while let Some(line) = self.lines.next() {
                if let Line::Whole(line) = line
                    && let Some(event) = received(line)
                {
                    return Ok(event);
                }
            }
            if !self.lines.read(&mut self.reader).await? {
                return Err(RouterError::HungUp { reason: "the connection was closed".to_owned() });
            }
        }
    }
}

/// Whether an address is one of this machine.
fn is_loopback(address: &str) -> bool {
    address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// A command as a line.
pub(crate) fn command_line(command: &str, request_id: &str, payload: &Value) -> String {
    let line = json!({
        "protocol": PROTOCOL,
        "type": "command",
        "timestamp": stamp(Clock::system().now()),
        "command": command,
        "request_id": request_id,
        "payload": payload,
    });
    format!("{line}\n")
}

fn received(line: Vec<u8>) -> Option<Received> {
    let line = String::from_utf8(line).ok()?;
    let event: EventLine<'_> = serde_json::from_str(&line).ok()?;
    let data = serde_json::from_str(event.data.get()).ok()?;
    let (seq, name, timestamp) = (event.seq, event.event, event.timestamp);
    Some(Received { seq, event: name, timestamp, data, line })
}
