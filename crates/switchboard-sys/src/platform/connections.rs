//! TCP connections of local processes: which process is connected to a server on this machine, and its user.
//!
//! Linux reads `/proc`. Other systems report nothing.

use std::io;
use std::net::SocketAddr;

/// The client end of a TCP connection within this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpPeer {
    /// User id of the socket's owner.
    pub uid: u32,
    /// Inode number of the socket.
    inode: u64,
}

impl TcpPeer {
    /// Returns the processes that hold the client end, as far as this user may inspect them.
    pub fn processes(&self) -> Vec<u32> {
        os::processes_with_socket(self.inode)
    }
}

/// Finds the client end of an accepted connection by both addresses.
///
/// Returns `None` if the system does not report it. Fails if no process holds the client end any more.
pub fn tcp_peer(local: SocketAddr, client: SocketAddr) -> io::Result<Option<TcpPeer>> {
    os::tcp_peer(local, client)
}

/// Finds the first of these processes that has a TCP connection to a port on which `server` listens.
///
/// Returns `None` also if the system does not report connections.
pub fn tcp_client_of(server: u32, candidates: &[u32]) -> Option<u32> {
    os::tcp_client_of(server, candidates)
}

#[cfg(target_os = "linux")]
mod os {
    use std::collections::HashSet;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::{fs, io};

    use super::TcpPeer;

    /// State of an established connection in `/proc/net/tcp`, like [`LISTEN`] for a listening socket.
    const ESTABLISHED: &str = "01";
    const LISTEN: &str = "0A";

    /// Entry of the kernel's table of TCP sockets.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Socket {
        pub(super) local: SocketAddr,
        pub(super) remote: SocketAddr,
        pub(super) is_listening: bool,
        pub(super) uid: u32,
        /// Inode number of the socket. If it is 0, no process holds the socket and its user is unknown.
        pub(super) inode: u64,
    }

    pub(super) fn tcp_peer(local: SocketAddr, client: SocketAddr) -> io::Result<Option<TcpPeer>> {
        let mut tables = Vec::new();
        for table in ["tcp", "tcp6"] {
            match fs::read_to_string(format!("/proc/self/net/{table}")) {
                Ok(table) => tables.push(table),
                // A kernel without IPv6 has no table `tcp6`, so only a missing table `tcp` is an error.
                Err(error) if table == "tcp" => return Err(error),
                Err(_) => {}
            }
        }
        let ends = (client.ip().to_canonical(), client.port(), local.ip().to_canonical(), local.port());
        let is_client = |socket: &Socket| {
            let (own, remote) = (socket.local, socket.remote);
            !socket.is_listening
                && socket.inode != 0
                && (own.ip(), own.port(), remote.ip(), remote.port()) == ends
        };
        let mut sockets = tables.iter().flat_map(|table| table.lines().skip(1).filter_map(parse));
        let found = sockets.find(is_client).map(|socket| TcpPeer { uid: socket.uid, inode: socket.inode });
        found
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the client is gone already"))
    }

    pub(super) fn processes_with_socket(inode: u64) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        pids.filter(|pid| socket_inodes(*pid).contains(&inode)).collect()
    }

    pub(super) fn tcp_client_of(server: u32, candidates: &[u32]) -> Option<u32> {
        let sockets: Vec<Socket> = ["tcp", "tcp6"]
            .into_iter()
            .filter_map(|table| fs::read_to_string(format!("/proc/{server}/net/{table}")).ok())
            .flat_map(|table| table.lines().skip(1).filter_map(parse).collect::<Vec<_>>())
            .collect();
        let of_server = socket_inodes(server);
        let own = || sockets.iter().filter(|socket| of_server.contains(&socket.inode));
        let ports: HashSet<u16> =
            own().filter(|socket| socket.is_listening).map(|socket| socket.local.port()).collect();
        let served: HashSet<(SocketAddr, SocketAddr)> = own()
            .filter(|socket| !socket.is_listening && ports.contains(&socket.local.port()))
            .map(|socket| (socket.remote, socket.local))
            .collect();
        let of_clients: HashSet<u64> = sockets
            .iter()
            .filter(|socket| served.contains(&(socket.local, socket.remote)))
            .map(|socket| socket.inode)
            .collect();
        if of_clients.is_empty() {
            return None;
        }
        candidates.iter().copied().find(|pid| !socket_inodes(*pid).is_disjoint(&of_clients))
    }

    /// Returns the inodes of a process's sockets. For another user's process there are none.
    fn socket_inodes(pid: u32) -> HashSet<u64> {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
        let inode = |entry: fs::DirEntry| {
            let link = fs::read_link(entry.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        entries.filter_map(|entry| inode(entry.ok()?)).collect()
    }

    /// Parses a line of `/proc/net/tcp` or `tcp6`. Returns `None` unless the socket listens or is connected.
    pub(super) fn parse(line: &str) -> Option<Socket> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let state = *words.get(3)?;
        let is_listening = state == LISTEN;
        if !is_listening && state != ESTABLISHED {
            return None;
        }
        Some(Socket {
            local: address(words.get(1)?)?,
            remote: address(words.get(2)?)?,
            is_listening,
            uid: words.get(7)?.parse().ok()?,
            inode: words.get(9)?.parse().ok()?,
        })
    }

    /// Parses `0100007F:1F90`: 32-bit words of the address in native byte order, then the port.
    fn address(text: &str) -> Option<SocketAddr> {
        let (ip, port) = text.split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok().map(u32::to_ne_bytes);
        let ip = match ip.len() {
            8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
            32 => {
                let mut bytes = [0; 16];
                for (number, four) in bytes.chunks_exact_mut(4).enumerate() {
                    four.copy_from_slice(&word(number * 8)?);
                }
                // A dual-stack socket has the IPv4 addresses of its connections as mapped addresses.
                IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
            }
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::io;
    use std::net::SocketAddr;

    use super::TcpPeer;

    pub(super) fn tcp_peer(_local: SocketAddr, _client: SocketAddr) -> io::Result<Option<TcpPeer>> {
        Ok(None)
    }

    pub(super) fn processes_with_socket(_inode: u64) -> Vec<u32> {
        Vec::new()
    }

    pub(super) fn tcp_client_of(_server: u32, _candidates: &[u32]) -> Option<u32> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
#[path = "connections_tests.rs"]
mod tests;
