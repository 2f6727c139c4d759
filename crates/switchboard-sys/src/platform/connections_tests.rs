use std::net::{TcpListener, TcpStream};

use super::os::{Socket, parse};
use super::*;

#[cfg(target_endian = "little")]
#[test]
fn kernel_table_is_parsed() {
    let listening =
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1";
    let expected = Socket {
        local: "127.0.0.1:8080".parse().unwrap(),
        remote: "0.0.0.0:0".parse().unwrap(),
        is_listening: true,
        uid: 1000,
        inode: 4711,
    };
    assert_eq!(parse(listening), Some(expected));
    let mapped = "   3: 0000000000000000FFFF00000100007F:8235 0000000000000000FFFF00000100007F:1F90 01 \
                  00000000:00000000 02:000002F3 00000000     0        0 815 2";
    let expected = Socket {
        local: "127.0.0.1:33333".parse().unwrap(),
        remote: "127.0.0.1:8080".parse().unwrap(),
        is_listening: false,
        uid: 0,
        inode: 815,
    };
    assert_eq!(parse(mapped), Some(expected));
    for other in ["", "  sl  local_address rem_address   st", "0: 0100007F:1F90 0100007F:1 06 0 0 0 0 0 0 0"]
    {
        assert_eq!(parse(other), None, "{other}");
    }
}

#[test]
fn connected_process_is_client() {
    let me = std::process::id();
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    assert_eq!(tcp_client_of(me, &[me]), None, "nothing is connected");
    let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let (accepted, _) = server.accept().unwrap();
    assert_eq!(tcp_client_of(me, &[1, me]), Some(me));
    drop((client, accepted));
}

#[test]
fn tcp_peer_is_client_process() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // A machine without IPv6 has no such address.
        let Ok(server) = TcpListener::bind(address) else { continue };
        let client = TcpStream::connect(server.local_addr().unwrap()).unwrap();
        let (accepted, from) = server.accept().unwrap();
        let peer = tcp_peer(accepted.local_addr().unwrap(), from).unwrap().unwrap();
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.processes(), [std::process::id()]);
        drop(client);
        assert!(tcp_peer(accepted.local_addr().unwrap(), from).is_err(), "no process holds it any more");
    }
}
