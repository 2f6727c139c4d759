//! Identity of the process that holds a lease or a lock.
//!
//! The lease of a process that has exited can be taken over at once, without waiting for a timeout. To make that
//! possible, the holder records its [`ProcessIdentity`] in the lease.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::platform::{self, ProcessStart};

/// Identity of a process, unique across hosts and pid reuse: `host/pid/started`.
///
/// The host is the machine's name. In a container or sandbox, the number of the pid namespace is added, because the pid
/// is valid only there.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessIdentity {
    host: String,
    pid: u32,
    started: ProcessStart,
}

/// Error of parsing a process identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an owner: expected `host/pid/started`")]
pub struct ParseProcessIdentityError {
    text: String,
}

impl ProcessIdentity {
    /// Returns the identity of the current process.
    pub fn this_process() -> Self {
        let pid = std::process::id();
        let started = platform::process_started(pid).unwrap_or_else(|| ProcessStart::from_text(""));
        Self { host: this_host().to_owned(), pid, started }
    }

    /// Returns the host of the process, in the form of [`this_host`].
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the process id, which is valid only on that host.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns true if the process runs on this host, where its pid can be looked up.
    pub fn is_on_this_host(&self) -> bool {
        self.host == this_host()
    }

    /// Returns true if this process is known to have exited.
    ///
    /// Returns false for a process on another host or in another container, because nothing is known about it. The
    /// caller has to use a timeout for such a process.
    pub fn has_exited(&self) -> bool {
        self.host == this_host()
            && platform::process_started(self.pid).is_none_or(|started| !started.may_equal(&self.started))
    }

    /// Returns true if a signal or a debugger is known to have stopped this process.
    pub fn is_stopped(&self) -> bool {
        self.is_on_this_host() && !self.has_exited() && platform::is_process_stopped(self.pid) == Some(true)
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host, self.pid, self.started)
    }
}

impl FromStr for ProcessIdentity {
    type Err = ParseProcessIdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseProcessIdentityError { text: text.to_owned() })
    }
}

/// Returns the host part of identities on this machine, in this pid namespace.
///
/// The text is constant while this process runs, even on a machine that is renamed with every network that it joins.
pub fn this_host() -> &'static str {
    static HOST: LazyLock<String> = LazyLock::new(|| {
        let name: String = platform::host_name().chars().filter(|&character| is_plain(character)).collect();
        match platform::pid_namespace() {
            Some(number) => format!("{name}+{number}"),
            None => name,
        }
    });
    &HOST
}

fn parse(text: &str) -> Option<ProcessIdentity> {
    let mut parts = text.split('/');
    let (host, pid, started) = (parts.next()?, parts.next()?, parts.next()?);
    let pid = pid.parse().ok().filter(|&pid| pid != 0)?;
    let is_whole = parts.next().is_none() && host.chars().chain(started.chars()).all(is_plain);
    is_whole.then(|| ProcessIdentity {
        host: host.to_owned(),
        pid,
        started: ProcessStart::from_text(started),
    })
}

/// Returns true for a character that is allowed in a part of an identity.
///
/// An identity is one line of text that is split at slashes.
fn is_plain(character: char) -> bool {
    character != '/' && !character.is_whitespace() && !character.is_control()
}

#[cfg(test)]
#[path = "process_identity_tests.rs"]
mod tests;
