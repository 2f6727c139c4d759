//! Free ports for programs that cannot choose one themselves.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{TcpListener, UdpSocket};

/// First port of the range, which is below the ephemeral ports.
///
/// The system therefore does not assign one of these ports before the test uses it.
const FIRST: u64 = 10_000;
const COUNT: u64 = 20_000;

/// Returns a port of 127.0.0.1 that is free for both TCP and UDP.
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
