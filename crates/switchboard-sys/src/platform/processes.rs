//! Listing of running processes: parents, programs, arguments and environments.
//!
//! Linux reads `/proc`. Other systems run `ps`, which reports neither environments nor open files.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use rustix::process::{Pid, Signal};

use super::{ProcessStart, process_started};

/// A running process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// The process id.
    pub pid: u32,
    /// The process id of the parent, or 0 if there is no parent.
    pub parent: u32,
    /// The file name of the program.
    pub program: String,
    /// The arguments of the program, without its name.
    pub arguments: Vec<OsString>,
}

/// Maximum depth of a process tree; a longer chain is implausible.
const GENERATIONS: usize = 256;

/// Returns the process and its ancestors, nearest first, as far as the system reports them.
///
/// The init process of the machine or container is not included, because init starts everything and adopts orphans.
pub fn process_and_ancestors(pid: u32) -> Vec<ProcessInfo> {
    let find = os::finder();
    let mut chain: Vec<ProcessInfo> = Vec::new();
    let mut next = pid;
    while next > 1 && chain.len() < GENERATIONS {
        let Some(process) = find(next) else { break };
        next = process.parent;
        if chain.iter().any(|known| known.pid == process.pid) {
            break;
        }
        chain.push(process);
    }
    chain
}

/// Returns the running processes whose program has one of these file names.
pub fn processes_of_program(names: &[&str]) -> Vec<ProcessInfo> {
    os::processes_of_program(names)
}

/// Returns the children of this process, including zombies.
pub fn children() -> Vec<u32> {
    os::children()
}

/// A process that descends from this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descendant {
    /// The process id.
    pub pid: u32,
    /// Start of the process, which distinguishes it from a later process with the same pid.
    start: ProcessStart,
}

/// Returns the running descendants of this process.
pub fn descendants() -> Vec<Descendant> {
    let this = std::process::id();
    let below = with_descendants(this).into_iter().filter(|pid| *pid != this);
    below.filter_map(|pid| Some(Descendant { pid, start: process_started(pid)? })).collect()
}

/// Returns the pids of a process and of its descendants.
fn with_descendants(pid: u32) -> BTreeSet<u32> {
    let family = os::family();
    let mut known = BTreeSet::from([pid]);
    loop {
        let before = known.len();
        let below = family.iter().filter(|(_, parent)| known.contains(parent)).map(|(pid, _)| *pid);
        let below: Vec<u32> = below.collect();
        known.extend(below);
        if known.len() == before {
            return known;
        }
    }
}

/// Sends a signal to a process unless that process has ended.
pub fn signal_process(process: &Descendant, signal: Signal) {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return };
    let is_same = || process_started(process.pid).is_some_and(|start| start.may_equal(&process.start));
    if let Err(error) = os::signal_if(pid, is_same, signal) {
        tracing::debug!(pid = process.pid, ?signal, %error, "a process takes no signal");
    }
}

/// CPU activity of a process and its descendants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Activity {
    /// CPU time of all these processes, in clock ticks.
    pub ticks: u64,
    /// True if at least one of these processes runs, waits for a processor or waits for a disk.
    pub is_running: bool,
}

/// Returns the CPU activity of a process and its descendants, or `None` if the system does not report it.
pub fn activity(pid: u32) -> Option<Activity> {
    os::activity(pid)
}

/// Returns a variable of a process's initial environment, or `None` if it is unset or the system does not report it.
pub fn process_variable(pid: u32, name: &str) -> Option<String> {
    process_environment(pid).variable(name)
}

/// Returns the initial environment of a process. The environment is empty if the system does not report it.
pub fn process_environment(pid: u32) -> Environment {
    Environment(os::process_environment(pid).unwrap_or_default())
}

/// Environment of another process. The values may be secret, so `Debug` redacts them.
#[derive(Clone, Default)]
pub struct Environment(Vec<u8>);

impl Environment {
    /// Returns the value of a variable, if it is set and valid UTF-8.
    pub fn variable(&self, name: &str) -> Option<String> {
        let mut variables = self.0.split(|&byte| byte == 0);
        let value = variables.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        String::from_utf8(value.to_vec()).ok()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment").finish_non_exhaustive()
    }
}

/// Returns true if two processes share the same stdin. Returns false if the system does not report it.
pub fn shares_stdin(one: u32, other: u32) -> bool {
    os::shares_stdin(one, other)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(target_os = "linux")]
mod os {
    use std::ffi::OsString;
    use std::fs;
    use std::io::Read;
    use std::os::unix::ffi::OsStringExt;
    use std::path::{Path, PathBuf};

    use rustix::process::{Pid, PidfdFlags, Signal};

    use super::{Activity, ProcessInfo, file_name};

    pub(super) fn finder() -> impl Fn(u32) -> Option<ProcessInfo> {
        read
    }

    fn read(pid: u32) -> Option<ProcessInfo> {
        let stat = read_file(pid, "stat").ok()?;
        let parent = parse_parent(&String::from_utf8_lossy(&stat))?;
        let line = read_file(pid, "cmdline").unwrap_or_default();
        let mut words = line.split(|&byte| byte == 0).map(|word| OsString::from_vec(word.to_vec()));
        let called = words.next().unwrap_or_default();
        // The link is set by the kernel, whereas `argv[0]` can be anything. The link of another user's process is
        // unreadable.
        let program = program(pid).unwrap_or_else(|| file_name(Path::new(&called)));
        let mut arguments: Vec<OsString> = words.collect();
        // Each word ends with a zero byte, so the last piece is empty.
        arguments.pop();
        Some(ProcessInfo { pid, parent, program, arguments })
    }

    /// Parses `ppid`, field 4 of `/proc/<pid>/stat`, which is the second field after the program's name in parentheses.
    pub(super) fn parse_parent(stat: &str) -> Option<u32> {
        stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    fn program(pid: u32) -> Option<String> {
        let path = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = file_name(&path);
        // The kernel adds this suffix if the program's file was replaced while the program runs.
        Some(name.strip_suffix(" (deleted)").map_or(name.clone(), str::to_owned))
    }

    pub(super) fn processes_of_program(names: &[&str]) -> Vec<ProcessInfo> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let is_named = |pid: &u32| program(*pid).is_some_and(|program| names.contains(&program.as_str()));
        pids.filter(is_named).filter_map(read).collect()
    }

    /// Returns the children of this process; see proc_pid_tid_children(5).
    ///
    /// The source is `/proc/self/task/*/children` where the kernel has it, otherwise a scan of all processes.
    pub(super) fn children() -> Vec<u32> {
        let this = std::process::id();
        let from_scan =
            || family().into_iter().filter(|(_, parent)| *parent == this).map(|(pid, _)| pid).collect();
        children_of_threads().unwrap_or_else(from_scan)
    }

    fn children_of_threads() -> Option<Vec<u32>> {
        let mut all = Vec::new();
        for thread in fs::read_dir("/proc/self/task").ok()? {
            let listed = fs::read_to_string(thread.ok()?.path().join("children")).ok()?;
            all.extend(listed.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        Some(all)
    }

    /// Returns the pid of each process with that of its parent.
    pub(super) fn family() -> Vec<(u32, u32)> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let parent = |pid: u32| parse_parent(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
        pids.filter_map(|pid| Some((pid, parent(pid)?))).collect()
    }

    pub(super) fn activity(pid: u32) -> Option<Activity> {
        let stats = super::with_descendants(pid).into_iter();
        let stats =
            stats.filter_map(|pid| parse_activity(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?));
        stats.reduce(|one, other| Activity {
            ticks: one.ticks + other.ticks,
            is_running: one.is_running || other.is_running,
        })
    }

    /// Parses the CPU activity of one process from `/proc/<pid>/stat`.
    ///
    /// The fields are `state` (3), and `utime`, `stime`, `cutime` and `cstime` (14 to 17).
    pub(super) fn parse_activity(stat: &str) -> Option<Activity> {
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let is_running = matches!(fields.next()?, "R" | "D");
        let ticks = fields.skip(10).take(4).map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
        Some(Activity { ticks, is_running })
    }

    /// Signals the process that has this pid now, if it is still the same.
    ///
    /// A pidfd always refers to the process for which it was opened, so the signal cannot reach a later process with
    /// the same pid.
    pub(super) fn signal_if(
        pid: Pid,
        is_same: impl FnOnce() -> bool,
        signal: Signal,
    ) -> rustix::io::Result<()> {
        let handle = rustix::process::pidfd_open(pid, PidfdFlags::empty())?;
        if is_same() { rustix::process::pidfd_send_signal(handle, signal) } else { Ok(()) }
    }

    pub(super) fn process_environment(pid: u32) -> Option<Vec<u8>> {
        read_file(pid, "environ").ok()
    }

    /// Reads a `/proc` file of a process.
    ///
    /// The size of such a file is unknown beforehand, and `fs::read` would start with 32 bytes.
    fn read_file(pid: u32, name: &str) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(4096);
        fs::File::open(format!("/proc/{pid}/{name}"))?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn shares_stdin(one: u32, other: u32) -> bool {
        let input = |pid: u32| -> Option<PathBuf> { fs::read_link(format!("/proc/{pid}/fd/0")).ok() };
        input(one).is_some_and(|link| Some(link) == input(other))
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use rustix::process::{Pid, Signal};

    use super::{Activity, ProcessInfo, listing};

    pub(super) fn activity(_pid: u32) -> Option<Activity> {
        None
    }

    pub(super) fn children() -> Vec<u32> {
        let this = std::process::id();
        family().into_iter().filter(|(_, parent)| *parent == this).map(|(pid, _)| pid).collect()
    }

    pub(super) fn family() -> Vec<(u32, u32)> {
        listing::all().into_iter().map(|process| (process.pid, process.parent)).collect()
    }

    pub(super) fn signal_if(
        pid: Pid,
        is_same: impl FnOnce() -> bool,
        signal: Signal,
    ) -> rustix::io::Result<()> {
        if is_same() { rustix::process::kill_process(pid, signal) } else { Ok(()) }
    }

    pub(super) fn finder() -> impl Fn(u32) -> Option<ProcessInfo> {
        let all = listing::all();
        move |pid| all.iter().find(|process| process.pid == pid).cloned()
    }

    pub(super) fn processes_of_program(names: &[&str]) -> Vec<ProcessInfo> {
        let mut all = listing::all();
        all.retain(|process| names.contains(&process.program.as_str()));
        all
    }

    pub(super) fn process_environment(_pid: u32) -> Option<Vec<u8>> {
        None
    }

    pub(super) fn shares_stdin(_one: u32, _other: u32) -> bool {
        false
    }
}

/// Process listing of `ps`, which every Unix has.
#[cfg(any(test, not(target_os = "linux")))]
mod listing {
    use std::path::Path;

    use super::{ProcessInfo, file_name};

    /// Lists all processes. Returns none if `ps` cannot be run.
    #[expect(clippy::disallowed_methods, reason = "waited for at once, by callers without a runtime")]
    pub(super) fn all() -> Vec<ProcessInfo> {
        let mut ps = std::process::Command::new("ps");
        // The PATH is fixed, because the inherited one may lead to another program.
        let output = ps.env("PATH", "/bin:/usr/bin").args(["-axww", "-o", "pid=,ppid=,command="]).output();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.unwrap_or_default().lines().filter_map(parse).collect()
    }

    /// Parses one line of the listing. Spaces within arguments are indistinguishable from separators.
    pub(super) fn parse(line: &str) -> Option<ProcessInfo> {
        let mut words = line.split_ascii_whitespace();
        let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let program = file_name(Path::new(words.next()?));
        Some(ProcessInfo { pid, parent, program, arguments: words.map(Into::into).collect() })
    }
}

#[cfg(test)]
#[path = "processes_tests.rs"]
mod tests;
