//! Who holds a lease or a lock: one process, told apart from every other.
//!
//! What a process holds can be taken over as soon as that process is gone, without waiting for a
//! time-out. For that, its [`Owner`] is written down beside what it holds.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use crate::platform::{self, ProcessStart};

/// A running process, as others can find it again: `host/pid/started`.
///
/// The host is the machine's name, and inside a container or sandbox also the number of its pid
/// namespace, because only there does the pid mean this process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    host: String,
    pid: u32,
    started: ProcessStart,
}

/// A text that is not `host/pid/started`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an owner: expected `host/pid/started`")]
pub struct ParseOwnerError {
    text: String,
}

impl Owner {
    /// The process that runs this code.
    pub fn this_process() -> Self {
        let pid = std::process::id();
        let started = platform::process_started(pid).unwrap_or_else(|| ProcessStart::from_text(""));
        Self { host: this_host().to_owned(), pid, started }
    }

    /// The host that the process runs on, as its own owner text names it.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The process id, which means something only on that host.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process runs on this machine, where its pid can be looked up.
    pub fn is_on_this_host(&self) -> bool {
        self.host == this_host()
    }

    /// Whether this process is known to have ended.
    ///
    /// Of a process on another host, or in another container, nothing is known, and the answer is
    /// `false`: whoever waits for it has to go by time.
    pub fn is_gone(&self) -> bool {
        self.host == this_host()
            && platform::process_started(self.pid).is_none_or(|started| !started.may_equal(&self.started))
    }

    /// True if a signal or a debugger is known to have stopped this process.
    pub fn is_stopped(&self) -> bool {
        self.is_on_this_host() && !self.is_gone() && platform::is_process_stopped(self.pid) == Some(true)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.host, self.pid, self.started)
    }
}

impl FromStr for Owner {
    type Err = ParseOwnerError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ParseOwnerError { text: text.to_owned() })
    }
}

/// The host part of the owners on this machine, in this pid namespace.
///
/// It stays the same for as long as this process runs, even where a machine is renamed with every
/// network that it joins.
pub fn this_host() -> &'static str {
    static HOST: LazyLock<String> = LazyLock::new(|| {
        let name: String = platform::host_name().chars().filter(|&letter| is_plain(letter)).collect();
        match platform::pid_namespace() {
            Some(number) => format!("{name}+{number}"),
            None => name,
        }
    });
    &HOST
}

fn parse(text: &str) -> Option<Owner> {
    let mut parts = text.split('/');
    let (host, pid, started) = (parts.next()?, parts.next()?, parts.next()?);
    let pid = pid.parse().ok().filter(|&pid| pid != 0)?;
    let is_whole = parts.next().is_none() && host.chars().chain(started.chars()).all(is_plain);
    is_whole.then(|| Owner { host: host.to_owned(), pid, started: ProcessStart::from_text(started) })
}

/// Whether a character can stand in an owner's parts: the text is one line, split at slashes.
fn is_plain(letter: char) -> bool {
    letter != '/' && !letter.is_whitespace() && !letter.is_control()
}

#[cfg(test)]
#[path = "owner_tests.rs"]
mod tests;
