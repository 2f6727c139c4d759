//! Free ports for programs that cannot choose one themselves.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{TcpListener, UdpSocket};

/// Port range: below the ephemeral ports, so that the system does not assign one of ours before it is used.
const FIRST: u64 = 10_000;
const COUNT: u64 = 20_000;

/// Returns a port of 127.0.0.1 on which no process listens, over TCP or UDP.
pub fn free_port() -> u16 {
    loop {
        let chance = RandomState::new().build_hasher().finish();
        let port = u16::try_from(FIRST + chance % COUNT).unwrap();
        let address = ("127.0.0.1", port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
}
