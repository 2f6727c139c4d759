//! A model that is none: answers the Responses API on this machine as the prompt tells it to.
//!
//! The last thing the user said decides. `SAY text` is answered with the text in two pieces, `RUN command` with a call
//! of the shell and then with `ran`, `WRITE name` with a patch that adds a file and then with `wrote`, `HANG` with a
//! beginning and no end, `BREAK` with status 500.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The model at work; it ends with this value.
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
}

impl Model {
    /// Starts it on a port of its own.
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
                // A client that hangs up in the middle is what some tests are about.
                std::thread::spawn(move || drop(answer(stream, &state)));
            }
        });
        Self { port, state }
    }

    /// Where it is, as Codex has to be told.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// Arguments that make Codex ask this model and nobody else.
    pub fn codex_args(&self) -> Vec<String> {
        codex_args(&self.url())
    }

    /// What the user said last, of every request so far.
    pub fn prompts(&self) -> Vec<String> {
        self.state.prompts.lock().unwrap().clone()
    }

    /// All that it was told, of every request so far.
    pub fn requests(&self) -> Vec<Value> {
        self.state.requests.lock().unwrap().clone()
    }

    /// How many requests hang.
    pub fn hanging(&self) -> usize {
        self.state.hanging.load(Ordering::Relaxed)
    }
}

/// Arguments that make Codex ask a model at this address.
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
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn answer(mut stream: TcpStream, state: &State) -> std::io::Result<()> {
    let body = request(&stream)?;
    let input = body["input"].as_array().cloned().unwrap_or_default();
    let said = |item: &Value| item["role"] == "user";
    let place = input.iter().rposition(said).unwrap_or_default();
    let pieces = input.get(place).and_then(|item| item["content"].as_array()).cloned().unwrap_or_default();
    let prompt: String = pieces.iter().filter_map(|piece| piece["text"].as_str()).collect();
    let prompt = unquoted(&prompt);
    let has_run = input[place..].iter().any(|item| item["type"] == "function_call_output");
    state.prompts.lock().unwrap().push(prompt.clone());
    state.requests.lock().unwrap().push(body["input"].clone());
    if prompt.starts_with("BREAK") {
        return stream.write_all(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    send(&mut stream, json!({ "type": "response.created", "response": { "id": "r" } }))?;
    if prompt.starts_with("HANG") {
        state.hanging.fetch_add(1, Ordering::Relaxed);
        stream.set_read_timeout(Some(Duration::from_mins(2)))?;
        // Until the other end has gone.
        let _ = stream.read(&mut [0]);
        state.hanging.fetch_sub(1, Ordering::Relaxed);
        return Ok(());
    }
    match prompt.split_once(' ') {
        Some(("RUN", command)) if !has_run => call(&mut stream, command)?,
        Some(("RUN", _)) => say(&mut stream, "ran")?,
        Some(("WRITE", name)) if !has_run => {
            let patch = format!("*** Begin Patch\n*** Add File: {name}\n+hello\n*** End Patch");
            call(&mut stream, &format!("apply_patch <<'EOF'\n{patch}\nEOF"))?;
        }
        Some(("WRITE", _)) => say(&mut stream, "wrote")?,
        Some(("SAY", text)) => say(&mut stream, text)?,
        _ => say(&mut stream, "what?")?,
    }
    let usage = json!({
        "input_tokens": 10, "input_tokens_details": { "cached_tokens": 2 },
        "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 15,
    });
    send(&mut stream, json!({ "type": "response.completed", "response": { "id": "r", "usage": usage } }))
}

fn request(stream: &TcpStream) -> std::io::Result<Value> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(serde_json::from_slice(&body).unwrap_or_default())
}

fn send(stream: &mut TcpStream, event: Value) -> std::io::Result<()> {
    let kind = event["type"].as_str().unwrap_or_default().to_owned();
    stream.write_all(format!("event: {kind}\ndata: {event}\n\n").as_bytes())
}

fn say(stream: &mut TcpStream, text: &str) -> std::io::Result<()> {
    let item = |text: &str| {
        let content = json!([{ "type": "output_text", "text": text, "annotations": [] }]);
        json!({ "type": "message", "role": "assistant", "id": "m", "content": content })
    };
    send(stream, json!({ "type": "response.output_item.added", "item": item("") }))?;
    let (first, second) = text.split_at(text.len() / 2);
    for piece in [first, second] {
        send(stream, json!({ "type": "response.output_text.delta", "item_id": "m", "delta": piece }))?;
    }
    send(stream, json!({ "type": "response.output_item.done", "item": item(text) }))
}

fn call(stream: &mut TcpStream, command: &str) -> std::io::Result<()> {
    let arguments = json!({ "cmd": command }).to_string();
    let item = json!({ "type": "function_call", "id": "f", "call_id": "call_1", "name": "exec_command", "arguments": arguments });
    send(stream, json!({ "type": "response.output_item.done", "item": item }))
}

/// The text of a message that another agent wrote, without its header and the marks before its lines.
fn unquoted(prompt: &str) -> String {
    let Some((_, quoted)) = prompt.split_once(":\n> ").filter(|(head, _)| head.starts_with("Message from "))
    else {
        return prompt.to_owned();
    };
    quoted.replace("\n> ", "\n")
}
