//! Client of the router, for the command line and for tests.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use switchboard_sys::clock::Clock;
use switchboard_sys::files::Dir;
use switchboard_sys::platform;
use switchboard_sys::process_identity::ProcessIdentity;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::RouterError;
use crate::lines::{Line, Lines};
use crate::wire::{EventLine, PROTOCOL, format_timestamp};

/// Endpoint file in the state folder of a workspace: it names the router's address.
const ENDPOINT_FILE: &str = "router.json";

/// Size limit of the endpoint file, larger than any that a router writes.
const MAX_ENDPOINT_FILE: u64 = 64 << 10;

/// Longest line that a client reads, large enough for a list of many jobs.
const MAX_LINE: usize = 64 << 20;

/// Time limit for connecting and receiving the answer to `hello`. A running router answers within milliseconds.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);

/// Extra time limit for a router process that is busy but not stopped.
///
/// On a loaded machine, such a process may wait seconds for CPU time.
const BUSY_HELLO_TIMEOUT: Duration = Duration::from_secs(8);

/// Endpoint of the router of a workspace. Only the owner can read the file, because it contains the token.
#[derive(Clone, Serialize, Deserialize)]
pub struct EndpointFile {
    /// Address on which the router listens: `unix:PATH` or `IP:PORT`.
    pub listen: String,
    /// The token for `hello`, if the router listens on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// The process id of the router.
    pub pid: u32,
    /// Identity of the same process: pid, host and start time.
    ///
    /// It distinguishes the process from a later one with the same pid.
    #[serde(default)]
    pub owner: String,
}

impl std::fmt::Debug for EndpointFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signpost")
            .field("listen", &self.listen)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

impl EndpointFile {
    /// Creates the endpoint of this process.
    pub fn new(listen: String, token: Option<String>) -> Self {
        let owner = ProcessIdentity::this_process();
        Self { listen, token, pid: owner.pid(), owner: owner.to_string() }
    }

    /// Writes the endpoint file, readable only by its owner.
    pub fn write(&self, folder: &Dir) -> Result<(), RouterError> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::from)?;
        Ok(folder.replace(ENDPOINT_FILE, &text, 0o600)?)
    }

    /// Removes the endpoint file if this process wrote it.
    pub fn remove(&self, folder: &Dir) -> Result<(), RouterError> {
        if Self::read(folder)?.is_some_and(|found| found.pid == self.pid) {
            folder.remove(ENDPOINT_FILE)?;
        }
        Ok(())
    }

    /// Reads the endpoint file after checking that it can be trusted.
    ///
    /// The file must be readable only by this user, belong to a running process of this host, and name an address that
    /// only this machine can reach. Returns `None` if there is no file or if its process has ended.
    ///
    /// Without these checks, a file from a cloned repository could redirect prompts and environment variables to any
    /// address.
    fn read_trusted(folder: &Dir) -> Result<Option<Self>, RouterError> {
        let Some(found) = folder.read(ENDPOINT_FILE, MAX_ENDPOINT_FILE)? else { return Ok(None) };
        let refuse = |issue: &str| Err(RouterError::UntrustedEndpoint { issue: issue.to_owned() });
        if found.stat.uid != rustix::process::geteuid().as_raw() {
            return refuse("it belongs to another user");
        }
        if folder.mode(ENDPOINT_FILE)?.is_none_or(|mode| mode & 0o777 != 0o600) {
            return refuse("its mode is not 0600");
        }
        let Ok(endpoint_file) = serde_json::from_slice::<Self>(&found.bytes) else { return Ok(None) };
        let Ok(owner) = endpoint_file.owner.parse::<ProcessIdentity>() else {
            return refuse("it does not name the process that wrote it");
        };
        if owner.pid() != endpoint_file.pid || !owner.is_on_this_host() {
            return refuse("the process that it names does not run on this machine");
        }
        if owner.has_exited() {
            return Ok(None);
        }
        if endpoint_file.listen.starts_with("unix:") || is_loopback(&endpoint_file.listen) {
            return Ok(Some(endpoint_file));
        }
        refuse("its address is neither a Unix socket nor a loopback address")
    }

    /// Reads the endpoint file without checks; returns `None` if the file is missing or invalid.
    pub fn read(folder: &Dir) -> Result<Option<Self>, RouterError> {
        let found = folder.read(ENDPOINT_FILE, MAX_ENDPOINT_FILE)?;
        Ok(found.and_then(|found| serde_json::from_slice(&found.bytes).ok()))
    }
}

/// An event that the client received.
#[derive(Debug, Clone)]
pub struct Received {
    /// Sequence number of the event in the event log.
    pub seq: u64,
    /// Name of the event.
    pub event: String,
    /// Time when the event was written.
    pub timestamp: String,
    /// Payload of the event.
    pub data: Value,
    /// The raw line as received.
    pub line: String,
}

/// A connection to a router.
pub struct Client {
    reader: Box<dyn AsyncRead + Send + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
    lines: Lines,
    /// Events received while `request` waited for its answer.
    unread: VecDeque<Received>,
    next: u64,
    prefix: String,
}

impl Client {
    /// Connects to the router of a workspace and sends `hello`, as an agent if one is named.
    ///
    /// The kernel accepts connections on behalf of a stopped process, so only an answer shows that the router runs.
    pub async fn connect(folder: &Dir, agent: Option<&str>) -> Result<Self, RouterError> {
        let endpoint_file = EndpointFile::read_trusted(folder)?.ok_or(RouterError::NotRunning)?;
        let mut opening = pin!(Self::open(&endpoint_file, agent));
        if let Ok(opened) = timeout(HELLO_TIMEOUT, &mut opening).await {
            return opened;
        }
        let is_stopped = platform::is_process_stopped(endpoint_file.pid);
        if is_stopped == Some(false)
            && let Ok(opened) = timeout(BUSY_HELLO_TIMEOUT, opening).await
        {
            return opened;
        }
        Err(RouterError::Unresponsive { pid: endpoint_file.pid })
    }

    async fn open(endpoint_file: &EndpointFile, agent: Option<&str>) -> Result<Self, RouterError> {
        let mut client = Self::connect_to_process(endpoint_file).await?;
        let mut hello = json!({});
        if let Some(token) = &endpoint_file.token {
            hello["token"] = json!(token);
        }
        if let Some(agent) = agent {
            hello["agent"] = json!(agent);
        }
        client.request("hello", &hello).await?;
        Ok(client)
    }

    /// Connects to the address of an endpoint file.
    ///
    /// On a Unix socket, verifies that the process named in the file is the listener, if the system reports the peer.
    async fn connect_to_process(endpoint_file: &EndpointFile) -> Result<Self, RouterError> {
        let Some(path) = endpoint_file.listen.strip_prefix("unix:") else {
            return Self::connect_to(&endpoint_file.listen).await.map_err(|_| RouterError::NotRunning);
        };
        let connected = switchboard_sys::socket::connect(Path::new(path)).await;
        let stream = connected.map_err(|error| match error.kind() {
            // The backlog is full because the process does not accept connections.
            ErrorKind::WouldBlock => RouterError::Unresponsive { pid: endpoint_file.pid },
            _ => RouterError::NotRunning,
        })?;
        let listener = stream.peer_cred()?.pid().and_then(|pid| u32::try_from(pid).ok());
        if listener.is_some_and(|pid| pid != endpoint_file.pid) {
            let issue = "another process listens on its socket".to_owned();
            return Err(RouterError::UntrustedEndpoint { issue });
        }
        let (reader, writer) = stream.into_split();
        Ok(Self::from_streams(reader, writer))
    }

    /// Connects to an address without sending anything.
    pub async fn connect_to(address: &str) -> Result<Self, RouterError> {
        if let Some(path) = address.strip_prefix("unix:") {
            let (reader, writer) = switchboard_sys::socket::connect(Path::new(path)).await?.into_split();
            return Ok(Self::from_streams(reader, writer));
        }
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        Ok(Self::from_streams(reader, writer))
    }

    /// Creates a client that reads from and writes to any two streams.
    pub fn from_streams(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            lines: Lines::new(MAX_LINE),
            unread: VecDeque::new(),
            next: 0,
            prefix: format!("{:08x}", fastrand::u32(..)),
        }
    }

    /// Sends a command; returns its request id.
    pub async fn send(&mut self, command: &str, payload: &Value) -> Result<String, RouterError> {
        self.next += 1;
        let request_id = format!("{}-{}", self.prefix, self.next);
        let line = command_line(command, &request_id, payload);
        self.write(line.as_bytes()).await?;
        Ok(request_id)
    }

    /// Writes raw bytes.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), RouterError> {
        self.writer.write_all(bytes).await?;
        Ok(self.writer.flush().await?)
    }

    /// Sends a command and returns the first event that answers it. Buffers all other events for `next`.
    pub async fn request(&mut self, command: &str, payload: &Value) -> Result<Received, RouterError> {
        let request_id = self.send(command, payload).await?;
        let mut unread = VecDeque::new();
        let answer = loop {
            let event = self.next().await?;
            if event.data.get("request_id").and_then(Value::as_str) == Some(&request_id) {
                break event;
            }
            unread.push_back(event);
        };
        unread.append(&mut self.unread);
        self.unread = unread;
        if answer.event == "command_rejected" {
            return Err(RouterError::from_rejection(&answer.data));
        }
        Ok(answer)
    }

    /// Returns the next event. Cancel safe.
    pub async fn next(&mut self) -> Result<Received, RouterError> {
        if let Some(event) = self.unread.pop_front() {
            return Ok(event);
        }
        loop {
            while let Some(line) = self.lines.next() {
                if let Line::Complete(line) = line
                    && let Some(event) = parse_event(line)
                {
                    return Ok(event);
                }
            }
            if !self.lines.read(&mut self.reader).await? {
                return Err(RouterError::Disconnected { reason: "the connection was closed".to_owned() });
            }
        }
    }
}

/// Returns true if an address belongs to this machine.
fn is_loopback(address: &str) -> bool {
    address.parse::<std::net::SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// Formats a command as a line.
pub(crate) fn command_line(command: &str, request_id: &str, payload: &Value) -> String {
    let line = json!({
        "protocol": PROTOCOL,
        "type": "command",
        "timestamp": format_timestamp(Clock::system().now()),
        "command": command,
        "request_id": request_id,
        "payload": payload,
    });
    format!("{line}\n")
}

fn parse_event(line: Vec<u8>) -> Option<Received> {
    let line = String::from_utf8(line).ok()?;
    let event: EventLine<'_> = serde_json::from_str(&line).ok()?;
    let data = serde_json::from_str(event.data.get()).ok()?;
    let (seq, name, timestamp) = (event.seq, event.event, event.timestamp);
    Some(Received { seq, event: name, timestamp, data, line })
}
