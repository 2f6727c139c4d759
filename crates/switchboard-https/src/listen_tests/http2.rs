//! HTTP/2 client that works frame by frame, for tests of clients that violate the protocol.

use std::net::SocketAddr;

use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::rig::{Rig, connect, tls, with_timeout};

/// HTTP/2 client with a single connection, which is never reopened.
pub(super) struct Http2 {
    stream: TlsStream<TcpStream>,
    next: u32,
}

/// Frame that the server sent.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    flags: u8,
    stream: u32,
    body: Vec<u8>,
}

impl Http2 {
    pub(super) async fn connect(rig: &Rig) -> Self {
        Self::connect_to(rig.address(), tls(&rig.ca.file(), &[b"h2"])).await
    }

    pub(super) async fn connect_to(address: SocketAddr, config: ClientConfig) -> Self {
        let mut stream = connect(address, config).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        let mut client = Self { stream, next: 1 };
        client.send(4, 0, 0, &[]).await;
        client
    }

    /// Sends a frame.
    pub(super) async fn send(&mut self, kind: u8, flags: u8, stream: u32, body: &[u8]) {
        let mut frame = u32::try_from(body.len()).unwrap().to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags]);
        frame.extend(stream.to_be_bytes());
        frame.extend(body);
        self.stream.write_all(&frame).await.unwrap();
    }

    /// Sends a request without a body. Returns the stream id of the request.
    pub(super) async fn request(&mut self, path: &str) -> u32 {
        // GET and https are in the static table of HPACK; path and host are literals.
        let mut head = vec![0x82, 0x87];
        for (name, value) in [(4, path), (1, "localhost")] {
            head.extend([name, u8::try_from(value.len()).unwrap()]);
            head.extend(value.as_bytes());
        }
        let stream = self.next;
        self.next += 2;
        self.send(1, 5, stream, &head).await;
        stream
    }

    /// Sends a request and returns the body of the response.
    pub(super) async fn ask(&mut self, path: &str) -> String {
        let stream = self.request(path).await;
        let mut answer = Vec::new();
        loop {
            let frame = with_timeout(self.frame()).await.unwrap();
            if frame.kind == 0 && frame.stream == stream {
                answer.extend(frame.body);
                if frame.flags & 1 == 1 {
                    return String::from_utf8(answer).unwrap();
                }
            }
        }
    }

    /// Reads all frames until the server closes the connection.
    pub(super) async fn rest(&mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.frame().await {
            frames.push(frame);
        }
        frames
    }

    /// Reads the next frame. Answers pings and settings.
    async fn frame(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let [a, b, c, kind, flags, stream @ ..] = head;
        let mut body = vec![0; usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap()];
        self.stream.read_exact(&mut body).await.ok()?;
        match (kind, flags & 1) {
            (6, 0) => self.send(6, 1, 0, &body).await,
            (4, 0) => self.send(4, 1, 0, &[]).await,
            _ => {}
        }
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), body })
    }
}
