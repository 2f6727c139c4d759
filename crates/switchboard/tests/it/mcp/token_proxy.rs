//! A proxy that adds the token to every request, for clients that cannot send a header.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;

/// A proxy that has its port and does not forward anything yet.
pub(super) struct TokenProxy(TcpListener);

impl TokenProxy {
    pub(super) fn bind() -> Self {
        Self(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
    }

    pub(super) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// Forwards all connections to a port, until the process ends.
    pub(super) fn start(self, to: u16, token: &str) {
        let header = format!("Authorization: Bearer {token}\r\n");
        thread::spawn(move || {
            for client in self.0.incoming().flatten() {
                let header = header.clone();
                // A broken connection concerns only its two ends.
                thread::spawn(move || drop(forward(client, to, &header)));
            }
        });
    }
}

/// Forwards one request and its answer. It tells the server to close afterwards, so that the next request uses another
/// connection, where it gets its header too.
fn forward(client: TcpStream, to: u16, header: &str) -> io::Result<()> {
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, to))?;
    server.set_nodelay(true)?;
    let mut answers = client.try_clone()?;
    let mut client = BufReader::new(client);
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if client.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if !line.to_ascii_lowercase().starts_with("connection:") {
            head.push_str(&line);
        }
    }
    write!(server, "{head}{header}Connection: close\r\n\r\n")?;
    let mut requests = server.try_clone()?;
    thread::spawn(move || {
        let _ = io::copy(&mut client, &mut requests);
        let _ = requests.shutdown(Shutdown::Both);
    });
    let copied = io::copy(&mut server, &mut answers);
    let _ = answers.shutdown(Shutdown::Both);
    copied.map(drop)
}
