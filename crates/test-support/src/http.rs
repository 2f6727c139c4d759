//! Minimal HTTP client for tests: one request per connection, with the response read as it arrives.
//!
//! The client shares no code with the server under test, so that a fault common to both cannot stay hidden.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};

use serde_json::Value;

use crate::poll::TIMEOUT;

/// An HTTP request to a server on this machine.
#[derive(Debug, Clone)]
pub struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// An HTTP response whose head has arrived. The body is read on demand.
pub struct Response {
    /// The status code.
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Body,
}

/// One server-sent event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Event type; empty if the server sent none.
    pub name: String,
    /// Event id, from which the stream can be resumed; empty if the server sent none.
    pub id: String,
    /// Data of the event.
    pub data: String,
}

struct Body {
    stream: BufReader<TcpStream>,
    rest: Rest,
}

/// How much of a response body is still to be read.
enum Rest {
    /// This many bytes remain.
    Bytes(u64),
    /// This many bytes of the current chunk remain, and further chunks follow.
    Chunk(u64),
    /// The body ends when the connection ends.
    Everything,
}

impl Request {
    /// Creates a request without a body.
    pub fn new(method: &'static str, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: Vec::new(), body: Vec::new() }
    }

    /// Creates a POST request with a JSON body. The request accepts JSON or an event stream as the response.
    pub fn post(path: &str, body: &Value) -> Self {
        let mut request = Self::new("POST", path)
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        request.body = body.to_string().into_bytes();
        request
    }

    /// Adds a header to the request.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a bearer token and, if one is given, the name of the agent.
    #[must_use]
    pub fn authorized(self, token: &str, agent: Option<&str>) -> Self {
        let request = self.header("Authorization", &format!("Bearer {token}"));
        match agent {
            Some(agent) => request.header("Switchboard-Agent", agent),
            None => request,
        }
    }

    /// Sends the request and waits for the head of the response.
    pub fn send(&self, port: u16) -> io::Result<Response> {
        let mut stream = self.send_head(port)?;
        stream.write_all(&self.body)?;
        Response::read(stream)
    }

    /// Sends only the head of the request. Dropping the returned stream disconnects in the middle of the request.
    pub fn send_head(&self, port: u16) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        let mut head = format!("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n", self.method, self.path);
        for (name, value) in &self.headers {
            head.extend([name.as_str(), ": ", value.as_str(), "\r\n"]);
        }
        if !self.body.is_empty() {
            head.extend(["Content-Length: ", &self.body.len().to_string(), "\r\n"]);
        }
        head.push_str("Connection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        Ok(stream)
    }

    /// Sends the complete request and disconnects without waiting for a response.
    pub fn send_and_hang_up(&self, port: u16) -> io::Result<()> {
        let mut stream = self.send_head(port)?;
        stream.write_all(&self.body)?;
        stream.shutdown(Shutdown::Both)
    }
}

impl Response {
    fn read(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        let mut stream = BufReader::new(stream);
        let status = line(&mut stream)?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("the answer has no status"))?;
        let mut headers = Vec::new();
        loop {
            let line = line(&mut stream)?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        // The body may be an event stream that is silent for a long time, so reads no longer time out.
        stream.get_ref().set_read_timeout(None)?;
        let found = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
        let rest = match (found("transfer-encoding"), found("content-length")) {
            (Some(_), _) => Rest::Chunk(0),
            (None, Some(length)) => Rest::Bytes(length.parse().unwrap()),
            (None, None) => Rest::Everything,
        };
        Ok(Self { status, headers, body: Body { stream, rest } })
    }

    /// Returns the value of a header, whose name must be given in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns true if the body is an event stream.
    pub fn is_stream(&self) -> bool {
        self.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"))
    }

    /// Reads and returns the complete body.
    pub fn text(mut self) -> io::Result<String> {
        let mut text = String::new();
        self.body.read_to_string(&mut text)?;
        Ok(text)
    }

    /// Returns the connection, which another thread can shut down to end the reading.
    pub fn connection(&self) -> io::Result<TcpStream> {
        self.body.stream.get_ref().try_clone()
    }

    /// Returns the events of the body, one by one as they arrive.
    pub fn events(self) -> impl Iterator<Item = Event> {
        let mut lines = BufReader::new(self.body);
        std::iter::from_fn(move || {
            let (mut name, mut id, mut data) = (String::new(), String::new(), Vec::new());
            loop {
                let line = line(&mut lines).ok()?;
                match line.split_once(':') {
                    Some(("event", value)) => value.trim_start().clone_into(&mut name),
                    Some(("id", value)) => value.trim_start().clone_into(&mut id),
                    Some(("data", value)) => data.push(value.strip_prefix(' ').unwrap_or(value).to_owned()),
                    None if line.is_empty() && !data.is_empty() => {
                        return Some(Event { name, id, data: data.join("\n") });
                    }
                    Some(_) | None => {}
                }
            }
        })
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Rest::Chunk(0) = self.rest {
            let mut size = line(&mut self.stream)?;
            if size.is_empty() {
                // The empty line ends the previous chunk.
                size = line(&mut self.stream)?;
            }
            let size = u64::from_str_radix(&size, 16).map_err(io::Error::other)?;
            self.rest = if size == 0 { Rest::Bytes(0) } else { Rest::Chunk(size) };
        }
        let (Rest::Bytes(left) | Rest::Chunk(left)) = &mut self.rest else {
            return self.stream.read(buffer);
        };
        let most = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.stream.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        *left -= read as u64;
        Ok(read)
    }
}

/// Reads one line without its line ending; returns an error if the connection ends instead.
fn line(stream: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    match stream.read_line(&mut line)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
    }
}
