//! Platform-specific queries about processes, hosts and file systems.
//!
//! All code that differs between Linux and other systems is here. Where a system has no answer, a function returns the one
//! that makes its callers more careful, never less.

mod connections;
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
pub use self::processes::{
    Activity, Descendant, Environment, ProcessInfo, activity, children, descendants, process_and_ancestors,
    process_environment, process_variable, processes_of_program, shares_stdin, signal_process,
};

/// Start of a process, which distinguishes it from a later process with the same pid.
///
/// The text is opaque. An empty one means that the process runs but the system does not report when it started.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessStart(String);

impl ProcessStart {
    /// Restores a value that was written with `Display`.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// True if both can belong to the same process. An unknown start equals any start.
    pub fn may_equal(&self, other: &Self) -> bool {
        self.0.is_empty() || other.0.is_empty() || self.0 == other.0
    }
}

impl fmt::Display for ProcessStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns the start of the process with this pid; `None` if no such process runs.
///
/// On Linux a zombie, which has exited but was not reaped by its parent, does not count as running: it holds nothing,
/// however long its parent sleeps.
pub fn process_started(pid: u32) -> Option<ProcessStart> {
    match os::process_stat(pid) {
        Some(os::ProcessStat::Running(mark)) => Some(ProcessStart(mark)),
        Some(os::ProcessStat::Ended) => None,
        // Unreadable does not mean exited: /proc may be mounted with `hidepid`, or not at all.
        None => process_exists(pid).then(|| ProcessStart(String::new())),
    }
}

/// True if a signal or a debugger has stopped the process; `None` if the system does not report it.
pub fn is_process_stopped(pid: u32) -> Option<bool> {
    os::is_process_stopped(pid)
}

/// Makes this process a subreaper, which adopts orphaned descendants; false if the system has no subreapers.
pub fn become_subreaper() -> bool {
    os::become_subreaper()
}

/// Sets the name of this process in listings such as `ps`.
pub fn set_process_name(name: &CStr) {
    os::set_process_name(name);
}

/// Returns the path of the running program, which stays valid when the file is replaced by another version.
pub fn own_program() -> io::Result<PathBuf> {
    os::own_program()
}

/// Returns the start time of a process by the system clock; `None` if no such process runs or the system does not report
/// it.
pub fn process_start_time(pid: u32) -> Option<Timestamp> {
    os::process_start_time(pid)
}

/// Finds the processes that were started with this variable, written `NAME=value`; none if the system does not report it.
///
/// Only processes of our own user are found, because others' environments are unreadable.
pub fn processes_with_variable(variable: &str) -> Vec<u32> {
    os::processes_with_variable(variable)
}

/// True if a foreground process of this process's terminal waits for input; `None` if the system does not report it.
pub fn awaits_line(pid: u32) -> Option<bool> {
    os::awaits_line(pid)
}

/// True if the terminal itself edits and echoes lines.
pub fn edits_lines(terminal: BorrowedFd<'_>) -> bool {
    let modes = termios::tcgetattr(terminal).map(|settings| settings.local_modes);
    modes.is_ok_and(|modes| modes.contains(LocalModes::ICANON | LocalModes::ECHO))
}

/// Opens a terminal to read its settings, without making it the terminal of this process.
pub fn open_terminal(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Returns the random id of this boot; `None` if the system has none.
pub fn boot_id() -> Option<String> {
    os::boot_id()
}

/// Returns the id of this machine's installation; `None` if the system has none.
pub fn machine_id() -> Option<&'static str> {
    static ID: LazyLock<Option<String>> = LazyLock::new(os::machine_id);
    ID.as_deref()
}

/// True if files in this directory keep their inode numbers across mounts.
pub fn has_stable_inodes(dir: &Path) -> bool {
    os::has_stable_inodes(dir)
}

/// True if this process ignores SIGHUP, as under `nohup`, so that it survives its terminal. True also if the system does
/// not report it.
pub fn ignores_hangup() -> bool {
    os::ignored_signals().is_none_or(|ignored| ignored & 1 == 1)
}

/// Returns the host name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the number of this process's pid namespace, unless it is the machine's initial one.
///
/// Sandboxes and containers often share the machine's name and files, but have their own pids, which are not valid
/// outside.
pub fn pid_namespace() -> Option<u64> {
    os::pid_namespace()
}

/// Raises the limit of open files of this process to the allowed maximum, at most `most`. Every connection needs one; the
/// default of 1,024, or 256 on macOS, would turn clients away.
pub fn raise_file_limit(most: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(most, |maximum| maximum.min(most));
    if current.is_some_and(|current| current < wanted) {
        // On failure the current limit stays in force.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// Returns the limit of open files of this process; `None` if there is none.
pub fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// File descriptor usage of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// Number of descriptors in use within the limit.
    pub used: u64,
    /// The limit in force.
    pub limit: u64,
}

/// Returns the file descriptor usage of a process; `None` if it cannot be read.
pub fn open_files(pid: u32) -> Option<OpenFiles> {
    os::open_files(pid)
}

/// Kind of a file system, as far as it matters for watching changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// Local: only this machine changes it, so every change can be reported.
    Local,
    /// Network: other machines or a daemon can change it without events.
    Network,
    /// Unknown to us, or not reported by the system.
    Unknown,
}

/// Returns the kind of file system of a directory.
pub fn filesystem(dir: &Path) -> Filesystem {
    os::filesystem(dir)
}

/// True if this directory is on a network file system, which other machines or a daemon can change without events.
///
/// Such file systems do not report every change, so a watcher has to poll as well. False if the kind is unknown.
pub fn is_network_filesystem(dir: &Path) -> bool {
    filesystem(dir) == Filesystem::Network
}

/// Creates an unnamed file in this directory, which is removed with its handle; `None` if the system or the file system
/// does not support that, or fails.
///
/// No other process sees it before it is linked, and nothing remains of it if its writer is killed.
pub(crate) fn unnamed_file(dir: BorrowedFd<'_>) -> Option<File> {
    os::unnamed_file(dir)
}

/// Links an unnamed file to an unused name. Only the error for a name in use is reliable; the caller has to find out the
/// reason of any other one in a different way.
pub(crate) fn link_unnamed(file: &File, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    os::link_unnamed(file, dir, name)
}

/// True if the system uses this name for an unnamed file in the events of its directory.
pub(crate) fn is_unnamed(name: &str) -> bool {
    os::is_unnamed(name)
}

/// True if a process with this pid exists, even if we may not signal it.
fn process_exists(pid: u32) -> bool {
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return false };
    match rustix::process::test_kill_process(pid) {
        Ok(()) => true,
        Err(error) => io::Error::from(error).kind() == io::ErrorKind::PermissionDenied,
    }
}

#[cfg(target_os = "linux")]
mod os {
    use std::ffi::CStr;
    use std::fs::{self, File};
    use std::io;
    use std::os::fd::{AsRawFd, BorrowedFd};
    use std::path::{Path, PathBuf};

    use jiff::Timestamp;
    use rustix::fs::{AtFlags, Mode, OFlags};

    use super::Filesystem;

    /// Magic numbers of `statfs(2)`: NFS, SMB2, CIFS, 9P, FUSE, SMB, AFS (two), Ceph, Coda, OCFS2, GFS2, Lustre and the
    /// shared folders of VirtualBox and VMware.
    const NETWORK_MAGICS: [i128; 15] = [
        0x6969,
        0xFE53_4D42,
        0xFF53_4D42,
        0x0102_1997,
        0x6573_5546,
        0x517B,
        0x5346_414F,
        0x6B41_4653,
        0x00C3_6400,
        0x7375_7245,
        0x7461_636F,
        0x0116_1970,
        0x0BD0_0BD0,
        0x786F_4256,
        0xBACB_ACBC,
    ];

    /// ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs, ramfs, JFS, ReiserFS, NTFS3, exFAT and FAT.
    const LOCAL_MAGICS: [i128; 14] = [
        0xEF53,
        0x5846_5342,
        0x9123_683E,
        0x0102_1994,
        0x794C_7630,
        0xF2F5_2010,
        0x2FC1_2FC1,
        0xCA45_1A4E,
        0x8584_58F6,
        0x3153_464A,
        0x5265_4973,
        0x7366_746E,
        0x2011_BAB0,
        0x4D44,
    ];

    /// Local file systems that assign inode numbers at each mount: exFAT and FAT; NTFS3 may reuse them.
    const UNSTABLE_MAGICS: [i128; 3] = [0x7366_746E, 0x2011_BAB0, 0x4D44];

    /// The pid namespace of the machine itself: `PROC_PID_INIT_INO`, a constant of the kernel.
    const MACHINE_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

    #[derive(Debug, PartialEq, Eq)]
    pub(super) enum ProcessStat {
        Running(String),
        Ended,
    }

    pub(super) fn process_stat(pid: u32) -> Option<ProcessStat> {
        parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads `/proc/<pid>/stat`, proc_pid_stat(5).
    ///
    /// The second field is the program's name in parentheses, which may itself contain spaces and parentheses, so fields are
    /// counted after the last one.
    pub(super) fn parse_stat(stat: &str) -> Option<ProcessStat> {
        let (_, after_name) = stat.rsplit_once(')')?;
        let mut fields = after_name.split_ascii_whitespace();
        let state = fields.next()?;
        if matches!(state, "Z" | "X" | "x") {
            return Some(ProcessStat::Ended);
        }
        // The state is field 3; `starttime` is field 22, so 18 fields lie between them.
        let ticks = fields.nth(18)?;
        ticks.bytes().all(|byte| byte.is_ascii_digit()).then(|| ProcessStat::Running(ticks.to_owned()))
    }

    pub(super) fn is_process_stopped(pid: u32) -> Option<bool> {
        parse_stopped(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Reads the state, field 3 of `/proc/<pid>/stat`: `T` is stopped by a signal, `t` by a debugger.
    pub(super) fn parse_stopped(stat: &str) -> Option<bool> {
        let (_, after_name) = stat.rsplit_once(')')?;
        Some(matches!(after_name.split_ascii_whitespace().next()?, "T" | "t"))
    }

    pub(super) fn processes_with_variable(variable: &str) -> Vec<u32> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let has_it = |pid: &u32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|one| one == variable.as_bytes()))
        };
        pids.filter(has_it).collect()
    }

    /// `PR_SET_CHILD_SUBREAPER`, prctl(2).
    pub(super) fn become_subreaper() -> bool {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
    }

    pub(super) fn set_process_name(name: &CStr) {
        // The name is only cosmetic.
        let _ = rustix::thread::set_name(name);
    }

    /// The kernel's link to the running file, valid even after that was deleted.
    #[expect(clippy::unnecessary_wraps, reason = "other systems may not tell")]
    pub(super) fn own_program() -> io::Result<PathBuf> {
        Ok(PathBuf::from("/proc/self/exe"))
    }

    /// Kernel functions in which a process waits for terminal input, proc_pid_wchan(5).
    const TERMINAL_READS: [&str; 2] = ["wait_woken", "n_tty_read"];

    pub(super) fn awaits_line(pid: u32) -> Option<bool> {
        let terminal = Foreground::of(pid)?.terminal;
        let entries = fs::read_dir("/proc").ok()?;
        let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
        let mut is_told = true;
        for pid in pids {
            let Some(process) = Foreground::of(pid).filter(|process| process.terminal == terminal) else {
                continue;
            };
            if !process.is_in_front || !process.sleeps {
                continue;
            }
            match fs::read_to_string(format!("/proc/{pid}/wchan")).as_deref() {
                Ok(waits) if TERMINAL_READS.contains(&waits) => return Some(true),
                // The kernel does not report it, or not to us.
                Ok("" | "0") | Err(_) => is_told = false,
                Ok(_) => {}
            }
        }
        is_told.then_some(false)
    }

    /// A process and its terminal, proc_pid_stat(5).
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Foreground {
        pub(super) terminal: i64,
        pub(super) is_in_front: bool,
        pub(super) sleeps: bool,
    }

    impl Foreground {
        fn of(pid: u32) -> Option<Self> {
            Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        }

        /// After the name: state, parent, group, session, terminal, the terminal's foreground group.
        pub(super) fn parse(stat: &str) -> Option<Self> {
            let (_, after_name) = stat.rsplit_once(')')?;
            let fields: Vec<&str> = after_name.split_ascii_whitespace().take(6).collect();
            let [state, _, group, _, terminal, foreground] = fields[..] else { return None };
            let terminal = terminal.parse().ok().filter(|terminal| *terminal != 0)?;
            Some(Self { terminal, is_in_front: group == foreground, sleeps: state == "S" })
        }
    }

    pub(super) fn process_start_time(pid: u32) -> Option<Timestamp> {
        let Some(ProcessStat::Running(ticks)) = process_stat(pid) else { return None };
        let booted = parse_boot_time(&fs::read_to_string("/proc/stat").ok()?)?;
        start_time(booted, ticks.parse().ok()?, rustix::param::clock_ticks_per_second())
    }

    /// Reads the line `btime` of `/proc/stat`, proc_stat(5): seconds since 1970.
    pub(super) fn parse_boot_time(stat: &str) -> Option<i64> {
        stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
    }

    /// Returns the time at this number of clock ticks after boot.
    pub(super) fn start_time(booted: i64, ticks: u64, per_second: u64) -> Option<Timestamp> {
        let millis = i64::try_from(ticks.checked_mul(1000)?.checked_div(per_second)?).ok()?;
        Timestamp::from_millisecond(booted.checked_mul(1000)?.checked_add(millis)?).ok()
    }

    /// `O_TMPFILE`, open(2).
    pub(super) fn unnamed_file(dir: BorrowedFd<'_>) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
    }

    pub(super) fn link_unnamed(file: &File, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
        // Through its path in /proc: only root may link the handle itself.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// The kernel names it by its inode number: `#123`.
    pub(super) fn is_unnamed(name: &str) -> bool {
        name.strip_prefix('#')
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    }

    pub(super) fn ignored_signals() -> Option<u64> {
        let status = fs::read_to_string("/proc/self/status").ok()?;
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
        u64::from_str_radix(ignored.trim(), 16).ok()
    }

    pub(super) fn open_files(pid: u32) -> Option<super::OpenFiles> {
        let limit = parse_file_limit(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)?;
        let numbers = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.filter_map(|entry| {
            let number: u64 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            // Lowering the limit closes no descriptors; it applies only to new ones.
            (number < limit).then_some(number)
        });
        Some(super::OpenFiles { used: numbers.count() as u64, limit })
    }

    pub(super) fn parse_file_limit(limits: &str) -> Option<u64> {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }

    pub(super) fn boot_id() -> Option<String> {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    }

    pub(super) fn machine_id() -> Option<String> {
        let text = fs::read_to_string("/etc/machine-id").ok()?;
        Some(text.trim().to_owned()).filter(|id| !id.is_empty())
    }

    pub(super) fn has_stable_inodes(dir: &Path) -> bool {
        rustix::fs::statfs(dir).is_ok_and(|stat| {
            let magic = i128::from(stat.f_type) & 0xFFFF_FFFF;
            LOCAL_MAGICS.contains(&magic) && !UNSTABLE_MAGICS.contains(&magic)
        })
    }

    pub(super) fn pid_namespace() -> Option<u64> {
        let link = fs::read_link("/proc/self/ns/pid").ok()?;
        parse_namespace(link.to_str()?).filter(|&number| number != MACHINE_PID_NAMESPACE)
    }

    pub(super) fn parse_namespace(link: &str) -> Option<u64> {
        link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
    }

    pub(super) fn filesystem(dir: &Path) -> Filesystem {
        let Ok(stat) = rustix::fs::statfs(dir) else { return Filesystem::Unknown };
        // The width and sign of `f_type` differ between C libraries; its low 32 bits do not.
        of_magic(i128::from(stat.f_type) & 0xFFFF_FFFF)
    }

    pub(super) fn of_magic(magic: i128) -> Filesystem {
        if NETWORK_MAGICS.contains(&magic) {
            Filesystem::Network
        } else if LOCAL_MAGICS.contains(&magic) {
            Filesystem::Local
        } else {
            Filesystem::Unknown
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod os {
    use std::ffi::CStr;
    use std::fs::File;
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::path::{Path, PathBuf};

    pub(super) fn become_subreaper() -> bool {
        false
    }

    pub(super) fn set_process_name(_name: &CStr) {}

    pub(super) fn own_program() -> io::Result<PathBuf> {
        std::env::current_exe()
    }

    #[expect(dead_code, reason = "only Linux tells these apart")]
    pub(super) enum ProcessStat {
        Running(String),
        Ended,
    }

    pub(super) fn process_stat(_pid: u32) -> Option<ProcessStat> {
        None
    }

    pub(super) fn is_process_stopped(_pid: u32) -> Option<bool> {
        None
    }

    pub(super) fn processes_with_variable(_variable: &str) -> Vec<u32> {
        Vec::new()
    }

    pub(super) fn awaits_line(_pid: u32) -> Option<bool> {
        None
    }

    pub(super) fn process_start_time(_pid: u32) -> Option<jiff::Timestamp> {
        None
    }

    pub(super) fn ignored_signals() -> Option<u64> {
        None
    }

    pub(super) fn unnamed_file(_dir: BorrowedFd<'_>) -> Option<File> {
        None
    }

    pub(super) fn link_unnamed(_file: &File, _dir: BorrowedFd<'_>, _name: &str) -> rustix::io::Result<()> {
        Err(rustix::io::Errno::NOSYS)
    }

    pub(super) fn is_unnamed(_name: &str) -> bool {
        false
    }

    pub(super) fn open_files(_pid: u32) -> Option<super::OpenFiles> {
        None
    }

    pub(super) fn boot_id() -> Option<String> {
        None
    }

    pub(super) fn machine_id() -> Option<String> {
        None
    }

    /// APFS and HFS+ store them.
    pub(super) fn has_stable_inodes(_dir: &Path) -> bool {
        true
    }

    pub(super) fn pid_namespace() -> Option<u64> {
        None
    }

    pub(super) fn filesystem(_dir: &Path) -> super::Filesystem {
        super::Filesystem::Unknown
    }
}

#[cfg(test)]
#[path = "platform_tests.rs"]
mod tests;
