//! Platform-specific queries about processes, hosts and file systems.
//!
//! All code that differs between Linux and other systems is here. Where a system has no answer, a function returns the
//! answer that makes its callers more careful, never less.

mod connections;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;
mod processes;

use std::ffi::CStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;
use rustix::termios::{self, LocalModes};

pub use self::connections::{TcpPeer, tcp_client_of, tcp_peer};
#[cfg(target_os = "linux")]
use self::linux as os;
#[cfg(not(target_os = "linux"))]
use self::portable as os;
pub use self::processes::{
    Activity, Descendant, Environment, ProcessInfo, activity, children, descendants, process_and_ancestors,
    process_environment, process_variable, processes_of_program, shares_stdin, signal_process,
};

/// Start of a process, which distinguishes it from a later process with the same pid.
///
/// The text is opaque. An empty text means that the process runs but the system does not report when it started.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessStart(String);

impl ProcessStart {
    /// Restores a value that was written with `Display`.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns true if both can be the start of the same process. An unknown start equals any start.
    pub fn may_equal(&self, other: &Self) -> bool {
        self.0.is_empty() || other.0.is_empty() || self.0 == other.0
    }
}

impl fmt::Display for ProcessStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the start of the process with this pid, or `None` if no such process runs.
///
/// On Linux a zombie, which has exited but was not reaped by its parent, does not count as running: a zombie holds
/// nothing, however long its parent sleeps.
pub fn process_started(pid: u32) -> Option<ProcessStart> {
    match os::process_stat(pid) {
        Some(os::ProcessStat::Running(mark)) => Some(ProcessStart(mark)),
        Some(os::ProcessStat::Ended) => None,
        // Unreadable does not mean exited, because /proc may be mounted with `hidepid`, or not at all.
        None => process_exists(pid).then(|| ProcessStart(String::new())),
    }
}

/// Returns true if a signal or a debugger has stopped the process, or `None` if the system does not report it.
pub fn is_process_stopped(pid: u32) -> Option<bool> {
    os::is_process_stopped(pid)
}

/// Makes this process a subreaper, which adopts orphaned descendants. Returns false if the system has no subreapers.
pub fn become_subreaper() -> bool {
    os::become_subreaper()
}

/// Sets the name that listings such as `ps` show for this process.
pub fn set_process_name(name: &CStr) {
    os::set_process_name(name);
}

/// Returns the path of the running program. The path stays valid when another version replaces the file.
pub fn own_program() -> io::Result<PathBuf> {
    os::own_program()
}

/// Returns the start time of a process by the system clock.
///
/// Returns `None` if no such process runs or the system does not report the time.
pub fn process_start_time(pid: u32) -> Option<Timestamp> {
    os::process_start_time(pid)
}

/// Finds the processes that were started with this variable, written `NAME=value`.
///
/// Returns none if the system does not report environments. Only processes of our own user are found, because the
/// environments of other users' processes are unreadable.
pub fn processes_with_variable(variable: &str) -> Vec<u32> {
    os::processes_with_variable(variable)
}

/// Returns true if a foreground process of the terminal of process `pid` waits for input.
///
/// Returns `None` if the system does not report it.
pub fn awaits_line(pid: u32) -> Option<bool> {
    os::awaits_line(pid)
}

/// Returns true if the terminal itself edits and echoes lines.
pub fn edits_lines(terminal: BorrowedFd<'_>) -> bool {
    let modes = termios::tcgetattr(terminal).map(|settings| settings.local_modes);
    modes.is_ok_and(|modes| modes.contains(LocalModes::ICANON | LocalModes::ECHO))
}

/// Opens a terminal to read its settings, without making it the terminal of this process.
pub fn open_terminal(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the random id of this boot, or `None` if the system has none.
pub fn boot_id() -> Option<String> {
    os::boot_id()
}

/// Returns the id of this machine's installation, or `None` if the system has none.
pub fn machine_id() -> Option<&'static str> {
    static ID: LazyLock<Option<String>> = LazyLock::new(os::machine_id);
    ID.as_deref()
}

/// Returns true if files in this directory keep their inode numbers across mounts.
pub fn has_stable_inodes(dir: &Path) -> bool {
    os::has_stable_inodes(dir)
}

/// Returns true if this process ignores SIGHUP, as under `nohup`, so that it survives its terminal.
///
/// Returns true also if the system does not report ignored signals.
pub fn ignores_hangup() -> bool {
    os::ignored_signals().is_none_or(|ignored| ignored & 1 == 1)
}

/// Returns the host name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the number of this process's pid namespace, unless it is the machine's initial one.
///
/// Sandboxes and containers often share the machine's name and files. They have their own pids, which are not valid
/// outside.
pub fn pid_namespace() -> Option<u64> {
    os::pid_namespace()
}

/// Raises the limit on open files of this process to the allowed maximum, but at most to `most`.
///
/// Every connection needs a file descriptor. With the default limit of 1,024, or 256 on macOS, clients would be turned
/// away.
pub fn raise_file_limit(most: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(most, |maximum| maximum.min(most));
    if current.is_some_and(|current| current < wanted) {
        // On failure the current limit stays in force.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// Returns the limit on open files of this process, or `None` if there is no limit.
pub fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// File descriptor usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// Number of open descriptors below the limit.
    pub used: u64,
    /// The limit in force on open files.
    pub limit: u64,
}

/// Returns the file descriptor usage of a process, or `None` if it cannot be read.
pub fn open_files(pid: u32) -> Option<OpenFiles> {
    os::open_files(pid)
}

/// Kind of a file system, as far as it matters for a file watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// Local file system: only this machine changes files, so every change can be reported.
    Local,
    /// Network file system: other machines or a daemon can change files without events.
    Network,
    /// The kind is unknown to Switchboard, or not reported by the system.
    Unknown,
}

/// Returns the kind of file system of a directory.
pub fn filesystem(dir: &Path) -> Filesystem {
    os::filesystem(dir)
}

/// Returns true if this directory is on a network file system. Returns false if the kind is unknown.
///
/// Other machines or a daemon can change such a file system without events, so a watcher has to poll as well.
pub fn is_network_filesystem(dir: &Path) -> bool {
    filesystem(dir) == Filesystem::Network
}

/// Creates an unnamed file in this directory, which is removed when its handle is closed.
///
/// Returns `None` if the system or the file system does not support that, or if it fails. No other process sees the
/// file before it is linked, and nothing remains of it if its writer is killed.
pub(crate) fn unnamed_file(dir: BorrowedFd<'_>) -> Option<File> {
    os::unnamed_file(dir)
}

/// Links an unnamed file to an unused name.
///
/// Only the error for a name in use is reliable. The caller has to find the reason of any other error in a different
/// way.
pub(crate) fn link_unnamed(file: &File, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    os::link_unnamed(file, dir, name)
}

/// Returns true if the system uses this name for an unnamed file in events of the file's directory.
pub(crate) fn is_unnamed(name: &str) -> bool {
    os::is_unnamed(name)
}

/// Returns true if a process with this pid exists, even if this user may not signal it.
fn process_exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => io::Error::from(error).kind() == io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;
