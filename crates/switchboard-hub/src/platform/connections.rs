//! TCP connections of processes: which process is connected to a server on this machine.
//!
//! Linux answers from `/proc`. Other systems do not tell.

/// The first of these processes that holds a TCP connection to a port on which `server` listens; `None` also where the
/// system does not tell.
pub fn tcp_client_of(server: u32, candidates: &[u32]) -> Option<u32> {
    os::tcp_client_of(server, candidates)
}

#[cfg(target_os = "linux")]
mod os {
    use std::collections::HashSet;
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

    /// States of a socket in `/proc/net/tcp`.
    const ESTABLISHED: &str = "01";
    const LISTEN: &str = "0A";

    /// A socket, as the kernel lists it.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Socket {
        pub(super) local: SocketAddr,
        pub(super) remote: SocketAddr,
        pub(super) is_listening: bool,
        pub(super) inode: u64,
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

    /// The sockets that a process has open; none where it is another user's.
    fn socket_inodes(pid: u32) -> HashSet<u64> {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return HashSet::new() };
        let inode = |entry: fs::DirEntry| {
            let link = fs::read_link(entry.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        };
        entries.filter_map(|entry| inode(entry.ok()?)).collect()
    }

    /// Reads a line of `/proc/net/tcp` or `tcp6`, where the socket listens or is connected.
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
            inode: words.get(9)?.parse().ok()?,
        })
    }

    /// Reads `0100007F:1F90`: words of the address in the machine's byte order, then the port.
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
                // A client that speaks both has an IPv4 connection as a mapped one.
                IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
            }
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    pub(super) fn tcp_client_of(_server: u32, _candidates: &[u32]) -> Option<u32> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
#[path = "connections_tests.rs"]
mod tests;
