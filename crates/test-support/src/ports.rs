//! Ports for programs that must be told one.

use std::net::TcpListener;

/// A port of 127.0.0.1 that nobody listens on now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
