//! Model stub on loopback: the OpenAI Responses, Anthropic Messages and Gemini APIs.
//!
//! The prompt contains a script for the answer; see `script`. Every request is recorded.

mod gemini;
mod messages;
mod responses;
mod script;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use script::{Answer, Call, Item};

/// Maximum time for which a request hangs or is held.
const HANG: Duration = Duration::from_mins(2);

/// A running model stub, which is stopped on drop.
pub struct Model {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_over: AtomicBool,
    hanging: AtomicUsize,
    prompts: Mutex<Vec<String>>,
    requests: Mutex<Vec<Value>>,
    bodies: Mutex<Vec<Value>>,
    gate: Gate,
}

/// Gate at which `HOLD` answers wait until the test releases them.
#[derive(Default)]
struct Gate {
    counts: Mutex<Held>,
    changed: Condvar,
}

#[derive(Default)]
struct Held {
    /// Number of answers that have arrived at the gate.
    arrived: usize,
    /// Number of answers that may pass the gate.
    released: usize,
}

/// One of the three APIs: defines how requests are read and answers are written.
trait Api {
    /// Returns the conversation of a request, oldest item first.
    fn items(body: &Value) -> Vec<Item>;
    /// Returns the part of a request that holds the conversation.
    fn conversation(body: &Value) -> &Value;
    /// Returns the names of the tools that the client offers.
    fn tools(body: &Value) -> Vec<String>;
    /// Writes the start of a response.
    fn open(stream: &mut TcpStream, body: &Value) -> std::io::Result<()>;
    /// Writes the text of an answer in pieces; `pause` runs before the last piece.
    fn send_text(stream: &mut TcpStream, pieces: &[&str], pause: &mut dyn FnMut()) -> std::io::Result<()>;
    /// Writes tool calls into a response.
    fn call(stream: &mut TcpStream, calls: &[(String, Call)]) -> std::io::Result<()>;
    /// Writes the end of a response.
    fn close(stream: &mut TcpStream, has_calls: bool) -> std::io::Result<()>;
}

impl Model {
    /// Starts the stub on a port that the system chooses.
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let serving = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), state) = (stream, serving.clone()) else { continue };
                // The error is ignored, because tests of interrupts make the client disconnect in the middle of an
                // answer.
                std::thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Self { port, state }
    }

    /// Returns the base URL of the Responses API, for Codex.
    pub fn url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// Returns the base URL of the Anthropic and Gemini APIs.
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the arguments that make Codex use only this model.
    pub fn codex_args(&self) -> Vec<String> {
        codex_args(&self.url())
    }

    /// Returns the newest user text of each request so far.
    pub fn prompts(&self) -> Vec<String> {
        self.state.prompts.lock().unwrap().clone()
    }

    /// Returns the conversation of each request so far.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap().clone()
    }

    /// Returns the complete body of each request so far.
    pub fn bodies(&self) -> Vec<Value> {
        self.state.bodies.lock().unwrap().clone()
    }

    /// Returns the number of requests that currently hang.
    pub fn hanging(&self) -> usize {
        self.state.hanging.load(Ordering::Relaxed)
    }

    /// Returns the number of `HOLD` answers so far that have waited for [`Self::release`], including those that still
    /// wait.
    pub fn held_answers(&self) -> usize {
        self.state.gate.counts.lock().unwrap().arrived
    }

    /// Releases the oldest waiting `HOLD` answer, or else the next one to arrive.
    pub fn release(&self) {
        self.state.gate.counts.lock().unwrap().released += 1;
        self.state.gate.changed.notify_all();
    }
}

/// Returns the arguments that make Codex use a model at this address.
pub fn codex_args(url: &str) -> Vec<String> {
    let provider = format!(
        r#"model_providers.stub={{name="Stub",base_url="{url}",wire_api="responses",request_max_retries=0,stream_max_retries=0}}"#
    );
    ["--disable", "plugins", "-c", r#"model="gpt-5.4""#, "-c", r#"model_provider="stub""#, "-c", &provider]
        .map(str::to_owned)
        .to_vec()
}

impl Drop for Model {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        self.state.gate.counts.lock().unwrap().released += usize::MAX / 2;
        self.state.gate.changed.notify_all();
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Gate {
    fn wait_for_release(&self) {
        let mut counts = self.counts.lock().unwrap();
        let index = counts.arrived;
        counts.arrived += 1;
        let _ = self.changed.wait_timeout_while(counts, HANG, |counts| counts.released <= index);
    }
}

fn serve(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let (method, path, body) = read_request(&stream)?;
    let path = path.split('?').next().unwrap_or_default();
    if method == "POST" && path.ends_with("/responses") {
        answer::<responses::Responses>(&mut stream, state, &body)
    } else if method == "POST" && path.ends_with("/messages") {
        answer::<messages::Messages>(&mut stream, state, &body)
    } else if method == "POST" && path.contains(":streamGenerateContent") {
        answer::<gemini::Gemini>(&mut stream, state, &body)
    } else if method == "POST" && path.contains(":generateContent") {
        // These are side requests of the client, such as which model to use, and belong to no turn.
        send_json(&mut stream, 200, &gemini::side_answer())
    } else if method == "POST" && (path.ends_with("/count_tokens") || path.ends_with(":countTokens")) {
        send_json(&mut stream, 200, &json!({ "input_tokens": 10, "totalTokens": 10 }))
    } else {
        send_json(&mut stream, 200, &json!({ "object": "list", "data": [], "models": [], "has_more": false }))
    }
}

fn answer<A: Api>(stream: &mut TcpStream, state: &State, body: &Value) -> std::io::Result<()> {
    let items = A::items(body);
    let offered = A::tools(body);
    state.prompts.lock().unwrap().push(script::newest_text(&items));
    state.requests.lock().unwrap().push(A::conversation(body).clone());
    state.bodies.lock().unwrap().push(body.clone());
    let answer = script::plan(&items);
    if let Answer::Break(status) = answer {
        let error =
            json!({ "type": "api_error", "code": status, "message": "the model stub was told to fail" });
        return send_json(stream, status, &json!({ "type": "error", "error": error }));
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    A::open(stream, body)?;
    let has_calls = matches!(answer, Answer::Call(_));
    match answer {
        Answer::Break(_) => {}
        Answer::Hang => {
            state.hanging.fetch_add(1, Ordering::Relaxed);
            stream.set_read_timeout(Some(HANG))?;
            // The read returns when the client disconnects.
            let _ = stream.read(&mut [0]);
            state.hanging.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        Answer::Say(text) => A::send_text(stream, &halves(&text), &mut || {})?,
        Answer::Hold(text) => A::send_text(stream, &halves(&text), &mut || state.gate.wait_for_release())?,
        Answer::Call(call) => A::call(stream, &[(tool_named(&call, &offered), call)])?,
    }
    A::close(stream, has_calls)
}

fn halves(text: &str) -> [&str; 2] {
    let middle = text.floor_char_boundary(text.len() / 2);
    let (first, second) = text.split_at(middle);
    [first, second]
}

/// Returns the offered tool with this name.
///
/// For a tool of an MCP server, the offered name only has to end with this name.
fn tool_named(call: &Call, offered: &[String]) -> String {
    let Call::Tool { name, .. } = call else { return String::new() };
    let exact = offered.iter().find(|tool| *tool == name);
    exact.or_else(|| offered.iter().find(|tool| tool.ends_with(name))).unwrap_or(name).clone()
}

/// Reads a request; returns its method, path and JSON body.
fn read_request(stream: &TcpStream) -> std::io::Result<(String, String, Value)> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "transfer-encoding" => is_chunked = value.contains("chunked"),
            _ => {}
        }
    }
    let mut body = Vec::new();
    if is_chunked {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
            reader.by_ref().take(size).read_to_end(&mut body)?;
            reader.read_line(&mut String::new())?;
            if size == 0 {
                break;
            }
        }
    } else {
        reader.take(length).read_to_end(&mut body)?;
    }
    Ok((method, path, serde_json::from_slice(&body).unwrap_or_default()))
}

fn send_json(stream: &mut TcpStream, status: u16, body: &Value) -> std::io::Result<()> {
    let body = body.to_string();
    let length = body.len();
    stream.write_all(
        format!("HTTP/1.1 {status} Stub\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")
            .as_bytes(),
    )
}

/// Writes a server-sent event whose name is the `type` of its data.
fn send_typed(stream: &mut TcpStream, event: &Value) -> std::io::Result<()> {
    let kind = event["type"].as_str().unwrap_or_default();
    stream.write_all(format!("event: {kind}\ndata: {event}\n\n").as_bytes())
}

/// Returns the texts of a message's content, which is a string or a list of blocks with a `text`.
fn texts(content: &Value) -> Vec<&str> {
    match content {
        Value::String(text) => vec![text],
        Value::Array(blocks) => blocks.iter().filter_map(|block| block["text"].as_str()).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
