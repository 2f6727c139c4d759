//! Ports for programs that must be told one.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{TcpListener, UdpSocket};

/// Where to look: below the ports that systems give to whoever asks for any, so that none of those is taken for ours
/// between now and its use.
const FIRST: u64 = 10_000;
const COUNT: u64 = 20_000;

/// A port of 127.0.0.1 that nobody listens on now, neither over TCP nor over UDP.
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
