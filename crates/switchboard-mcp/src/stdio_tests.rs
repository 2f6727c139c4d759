//! The example server as a real process on pipes, sockets and files.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use switchboard_sys::files::Dir;
use switchboard_sys::process::{Child, Spawn};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::timeout;

/// Timeout that suffices on a busy machine; no test waits for it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns the path of the example server, which is built with the tests.
fn server() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    let path = path.join("examples/conformance_server");
    assert!(path.exists(), "{} is missing: run the tests with their examples", path.display());
    path
}

/// A server on pipes.
struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
}

impl Piped {
    fn start() -> Self {
        Self::spawn(Spawn::new(server()).args(["--stdio"]))
    }

    fn spawn(spawn: Spawn) -> Self {
        let mut child = spawn.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin_writer();
        let output = BufReader::new(child.stdout_reader().unwrap()).lines();
        Self { child, input, output }
    }

    async fn open() -> Self {
        let mut server = Self::start();
        server.send(&initialize("2025-11-25")).await;
        assert_eq!(server.read().await["result"]["protocolVersion"], "2025-11-25");
        server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        server
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).await.unwrap();
    }

    async fn send(&mut self, line: &str) {
        self.write(format!("{line}\n").as_bytes()).await;
    }

    async fn read_line(&mut self) -> Option<String> {
        timeout(PATIENCE, self.output.next_line()).await.expect("the server says something in time").unwrap()
    }

    async fn read(&mut self) -> Value {
        let line = self.read_line().await.expect("the server is still there");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Sends a ping and checks its answer.
    async fn ping(&mut self, id: u32) {
        self.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
        assert_eq!(self.read().await, json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    }

    /// Waits for the end of the output, which is the end of the server.
    async fn read_to_end(&mut self) {
        while self.read_line().await.is_some() {}
    }
}

fn initialize(version: &str) -> String {
    let client = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params}).to_string()
}

fn call(id: u32, tool: &str) -> String {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool}}).to_string()
}

#[tokio::test]
async fn batch_is_accepted_by_its_revision() {
    for (version, is_taken) in [("2025-03-26", true), ("2025-11-25", false)] {
        let mut server = Piped::start();
        server.send(&initialize(version)).await;
        assert_eq!(server.read().await["result"]["protocolVersion"], version);
        server.send(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#).await;
        let ping = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        server.send(&format!(r#"[{}, {{"id":3}}, {}]"#, ping(1), ping(2))).await;
        let mut answers = Vec::new();
        for _ in 0..if is_taken { 3 } else { 1 } {
            let answer = server.read().await;
            answers.push((answer["id"].clone(), answer["error"]["code"].clone()));
        }
        answers.sort_by_key(|(id, _)| id.to_string());
        if is_taken {
            assert_eq!(
                answers,
                [(json!(1), json!(null)), (json!(2), json!(null)), (json!(3), json!(-32600))]
            );
            server.send("[]").await;
            assert_eq!(server.read().await["error"]["code"], -32600);
        } else {
            assert_eq!(answers, [(json!(null), json!(-32600))]);
        }
        server.ping(7).await;
    }
}

#[tokio::test]
async fn ids_are_returned_exactly() {
    let mut server = Piped::open().await;
    let long = format!("\"{}\"", "x".repeat(1 << 20));
    for id in [r#""a b""#, "9007199254740993", "-1", &long] {
        server.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
        let answer = server.read_line().await.unwrap();
        assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#));
    }
    for id in ["null", "1.5", "18446744073709551616"] {
        server.send(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#)).await;
        let answer = server.read_line().await.unwrap();
        assert!(
            answer.starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32600"#)),
            "{answer}"
        );
    }
    server.ping(5).await;
}

#[tokio::test]
async fn invalid_lines_are_answered_in_order() {
    let mut server = Piped::open().await;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    for (line, code) in [
        ("{".to_owned(), -32700),
        ("log: hello".to_owned(), -32700),
        (format!("{ping}{ping}"), -32700),
        (format!("[{ping}]"), -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#.to_owned(), -32600),
    ] {
        server.send(&line).await;
        let answer = server.read().await;
        assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &Value::Null), "{line}");
        server.ping(7).await;
    }
    server.write(b"\r\n\n   \n{\"jsonrpc\":\"2.0\",\"id\":8,\"method\":\"ping\"}\r\n").await;
    assert_eq!(server.read().await["id"], 8);
}

#[tokio::test]
async fn bom_and_unterminated_last_line_are_accepted() {
    let mut server = Piped::start();
    server.write(format!("\u{feff}{}\n", initialize("2024-11-05")).as_bytes()).await;
    assert_eq!(server.read().await["result"]["protocolVersion"], "2024-11-05");
    server.write(br#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#).await;
    server.input = None;
    assert_eq!(server.read().await["id"], 9);

    let mut server = Piped::open().await;
    server.write(br#"{"jsonrpc":"2.0","id":9,"meth"#).await;
    server.input = None;
    assert_eq!(server.read().await["error"]["code"], -32700);
}

#[tokio::test]
async fn endless_line_is_rejected_and_skipped() {
    let mut server = Piped::open().await;
    for _ in 0..17 {
        server.write(&vec![b'x'; 1 << 20]).await;
    }
    server.write(b"\n").await;
    assert_eq!(server.read().await["error"]["code"], -32600);
    server.ping(3).await;
}

#[tokio::test]
async fn early_messages_do_not_end_the_session() {
    let mut server = Piped::start();
    server.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#).await;
    server.send(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#).await;
    server.send(&call(2, "test_simple_text")).await;
    assert_eq!(server.read().await["error"]["code"], -32602);
    server.ping(3).await;
    server.send(&initialize("1999-01-01")).await;
    assert_eq!(server.read().await["result"]["protocolVersion"], "2025-11-25");
    server.send(&call(4, "test_simple_text")).await;
    assert_eq!(server.read().await["id"], 4);
}

#[tokio::test]
async fn stateless_client_needs_no_initialize() {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let request = |id: u32, method: &str, params: Value| {
        let mut params = params;
        params["_meta"] = meta.clone();
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string()
    };
    let mut server = Piped::start();
    server.send(&request(1, "server/discover", json!({}))).await;
    let versions = server.read().await["result"]["supportedVersions"].clone();
    assert!(versions.as_array().unwrap().contains(&json!("2026-07-28")), "{versions}");
    server.send(&request(2, "tools/call", json!({"name": "test_simple_text"}))).await;
    let result = server.read().await["result"].clone();
    assert_eq!(result["content"][0]["text"], "This is a simple text response for testing.");
}

#[tokio::test]
async fn stdout_has_only_messages() {
    let spawn = Spawn::new(server()).args(["--stdio"]).env("RUST_LOG", "trace");
    let mut server = Piped::spawn(spawn);
    server.send(&initialize("2025-11-25")).await;
    server.send(&call(1, "test_tool_with_logging")).await;
    server.send("nonsense").await;
    server.input = None;
    let mut heard = 0;
    while let Some(line) = server.read_line().await {
        let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        heard += 1;
    }
    assert_eq!(heard, 6, "two answers, three log entries and one refusal");
}

#[tokio::test]
async fn server_ends_with_its_input() {
    let mut server = Piped::open().await;
    server.ping(1).await;
    server.input = None;
    server.read_to_end().await;
    assert!(timeout(PATIENCE, server.child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn server_ends_with_input_during_call() {
    let mut server = Piped::open().await;
    server.send(&call(1, "test_wait")).await;
    server.ping(2).await;
    server.input = None;
    server.read_to_end().await;
}

#[tokio::test]
async fn server_ends_with_killed_parent() {
    // A shell starts the server and waits for it. The test holds the other end of the pipe.
    let script = r#"exec 3<&0; "$0" --stdio <&3 & wait"#;
    let shell = Spawn::new("sh").args([std::ffi::OsStr::new("-c"), script.as_ref(), server().as_os_str()]);
    let mut server = Piped::spawn(shell);
    server.send(&initialize("2025-11-25")).await;
    server.read().await;
    server.send(&call(1, "test_wait")).await;
    server.ping(2).await;
    let shell = Pid::from_raw(i32::try_from(server.child.pid()).unwrap()).unwrap();
    kill_process(shell, Signal::KILL).unwrap();
    server.read_to_end().await;
    assert!(server.input.is_some());
}

#[tokio::test]
async fn server_ends_behind_wrapper() {
    let script = r#""$0" --stdio; exit 7"#;
    let shell = Spawn::new("sh").args([std::ffi::OsStr::new("-c"), script.as_ref(), server().as_os_str()]);
    let mut server = Piped::spawn(shell);
    server.send(&initialize("2025-11-25")).await;
    server.read().await;
    server.input = None;
    server.read_to_end().await;
    assert_eq!(timeout(PATIENCE, server.child.wait()).await.unwrap().unwrap().code(), Some(7));
}

#[tokio::test]
async fn server_ends_when_stdout_closes() {
    let mut server = Piped::open().await;
    let Piped { mut child, input, output } = server;
    drop(output);
    let mut input = input.unwrap();
    let _ = input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await;
    timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
    server = Piped::open().await;
    server.ping(1).await;
}

#[tokio::test]
async fn sockets_are_served() {
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    let both = [OwnedFd::from(theirs.try_clone().unwrap()), OwnedFd::from(theirs)];
    let [input, output] = both.map(Stdio::from);
    let child = Spawn::new(server()).args(["--stdio"]).stdin(input).stdout(output);
    let mut child = child.spawn().unwrap();
    ours.set_nonblocking(true).unwrap();
    let (output, mut input) = UnixStream::from_std(ours).unwrap().into_split();
    let mut output = BufReader::new(output).lines();
    input.write_all(format!("{}\n", initialize("2025-11-25")).as_bytes()).await.unwrap();
    let line = timeout(PATIENCE, output.next_line()).await.unwrap().unwrap().unwrap();
    assert!(line.contains("2025-11-25"), "{line}");
    drop(input);
    drop(output);
    assert!(timeout(PATIENCE, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn files_are_served() {
    let home = tempfile::tempdir().unwrap();
    let folder = Dir::open_root(home.path()).unwrap();
    let script = format!("{}\n{}\n", initialize("2025-11-25"), call(1, "test_simple_text"));
    folder.replace("in", script.as_bytes(), 0o600).unwrap();
    folder.replace("out", b"", 0o600).unwrap();
    let input = std::fs::File::open(home.path().join("in")).unwrap();
    let output = std::fs::OpenOptions::new().append(true).open(home.path().join("out")).unwrap();
    let child = Spawn::new(server()).args(["--stdio"]).stdin(input.into()).stdout(output.into());
    assert!(timeout(PATIENCE, child.spawn().unwrap().wait()).await.unwrap().unwrap().success());
    let printed = std::fs::read_to_string(home.path().join("out")).unwrap();
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(printed.ends_with('\n') && printed.contains("simple text response"), "{printed}");
}

#[tokio::test]
async fn shutdown_ends_the_session_in_time() {
    let (ours, theirs) = tokio::io::duplex(1024);
    let (read, write) = tokio::io::split(theirs);
    let shutdown = super::CancellationToken::new();
    let served = tokio::spawn(super::serve(
        Quiet,
        crate::NoRawCalls,
        (read, write),
        super::ClientState::new(super::Connection::default(), std::future::pending()),
        shutdown.clone(),
    ));
    let (output, mut input) = tokio::io::split(ours);
    input.write_all(format!("{}\n", initialize("2025-11-25")).as_bytes()).await.unwrap();
    let mut output = BufReader::new(output);
    let mut line = String::new();
    timeout(PATIENCE, output.read_line(&mut line)).await.unwrap().unwrap();
    shutdown.cancel();
    timeout(PATIENCE, served).await.unwrap().unwrap();
    let mut rest = Vec::new();
    timeout(PATIENCE, output.read_to_end(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, b"");
}

/// Handler with default behaviour only.
struct Quiet;

impl rmcp::ServerHandler for Quiet {}
