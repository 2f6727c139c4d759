//! HTTPS client: a minimal HTTP/1.1 implementation, so that mostly the server is measured.

use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::authority::Authority;
use crate::mcp::pipe::TOO_LONG;

/// Buffer size, larger than any response to a message.
const ANSWER: usize = 16 * 1024;

/// Number of client connections per address, half of the number that a hub accepts from one address.
const PER_ADDRESS: usize = 16;

/// Connection for sequential requests.
pub(super) struct Client {
    stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

impl Client {
    /// Connects a client from one of several loopback addresses, over which the clients are spread.
    pub(super) async fn connect(authority: &Authority, port: u16, number: usize) -> anyhow::Result<Self> {
        let address = Ipv4Addr::new(127, 0, 0, u8::try_from(1 + number / PER_ADDRESS)?);
        let socket = TcpSocket::new_v4()?;
        socket.bind((address, 0).into())?;
        let stream = socket.connect((Ipv4Addr::LOCALHOST, port).into()).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let stream = authority.connector()?.connect(name, stream).await?;
        Ok(Self { stream, unread: Vec::new() })
    }

    /// Sends a request; returns the status once the complete response has arrived.
    pub(super) async fn send(&mut self, request: &[u8]) -> anyhow::Result<u16> {
        self.stream.write_all(request).await?;
        self.stream.flush().await?;
        timeout(TOO_LONG, self.answer()).await.context("the server does not answer")?
    }

    async fn answer(&mut self) -> anyhow::Result<u16> {
        let end = loop {
            if let Some(end) = self.unread.windows(4).position(|part| part == b"\r\n\r\n") {
                break end + 4;
            }
            self.read_more().await?;
        };
        let head = std::str::from_utf8(&self.unread[..end])?.to_ascii_lowercase();
        let status = head.split(' ').nth(1).context("no status")?.parse()?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.context("no length")?.parse()?;
        while self.unread.len() < end + length {
            self.read_more().await?;
        }
        self.unread.drain(..end + length);
        Ok(status)
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        let read = self.stream.read_buf(&mut self.unread).await?;
        ensure!(read > 0, "the connection was closed");
        ensure!(self.unread.len() <= ANSWER, "the answer does not end");
        Ok(())
    }
}
