//! What only the operating system can say about processes, hosts and file systems.
//!
//! Everything that differs between Linux and the other systems is in here. Where a system has no
//! answer, the functions give the one that makes their callers more careful, never less.

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

/// The mark of a process's start, which tells it from a later process with the same pid.
///
/// The text is opaque. An empty one says that the process runs but that the system does not tell
/// when it began.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProcessStart(String);

impl ProcessStart {
    /// Takes back a mark that was written down with `Display`.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether both marks can be of the same process. An unknown start may be any start.
    pub fn may_equal(&self, other: &Self) -> bool {
        self.0.is_empty() || other.0.is_empty() || self.0 == other.0
    }
}

impl fmt::Display for ProcessStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The start mark of the process with this pid; `None` when no such process runs.
///
/// On Linux a process that has ended but was not yet collected by its parent does not count as
/// running: it holds nothing any more, however long its parent sleeps.
pub fn process_started(pid: u32) -> Option<ProcessStart> {
    match os::process_stat(pid) {
        Some(os::ProcessStat::Running(mark)) => Some(ProcessStart(mark)),
        Some(os::ProcessStat::Ended) => None,
        // Not readable is not the same as gone: /proc may be mounted with `hidepid`, or not at all.
        None => process_exists(pid).then(|| ProcessStart(String::new())),
    }
}

/// True if a signal or a debugger has stopped the process; `None` where the system does not tell.
pub fn is_process_stopped(pid: u32) -> Option<bool> {
    os::is_process_stopped(pid)
}

/// Makes this process a subreaper: a descendant that loses its parent becomes its child. False where the system has none.
pub fn become_subreaper() -> bool {
    os::become_subreaper()
}

/// Names this process in listings such as that of `ps`.
pub fn set_process_name(name: &CStr) {
    os::set_process_name(name);
}

/// This program's file, which stays the same also when another version takes its place.
pub fn own_program() -> io::Result<PathBuf> {
    os::own_program()
}

/// When the process with this pid began, by the machine's clock; `None` when no such process runs or the
/// system does not tell.
pub fn process_start_time(pid: u32) -> Option<Timestamp> {
    os::process_start_time(pid)
}

/// The processes that were started with this variable, written `NAME=value`; none where the system does not tell.
///
/// Only processes whose environment we may read are found: those of our own user.
pub fn processes_with_variable(variable: &str) -> Vec<u32> {
    os::processes_with_variable(variable)
}

/// True if a process in the foreground of this process's terminal waits for a line of it; `None` where the system
/// does not tell.
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

/// The id that the kernel drew when it booted; `None` where the system has none.
pub fn boot_id() -> Option<String> {
    os::boot_id()
}

/// The id that this machine was given when it was installed; `None` where the system has none.
pub fn machine_id() -> Option<&'static str> {
    static ID: LazyLock<Option<String>> = LazyLock::new(os::machine_id);
    ID.as_deref()
}

/// Whether a file in this directory keeps its inode number when the file system is mounted again.
pub fn has_stable_inodes(dir: &Path) -> bool {
    os::has_stable_inodes(dir)
}

/// Whether this process was started so that the end of its terminal does not end it, as `nohup` does. Where the
/// system does not tell, it may have been.
pub fn outlives_its_terminal() -> bool {
    os::ignored_signals().is_none_or(|ignored| ignored & 1 == 1)
}

/// The name of this machine as its kernel knows it.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The number of the pid namespace that this process lives in, when it is not the machine's own.
///
/// Sandboxes and containers often share the machine's name and files, but count processes on their
/// own: there a pid says nothing about a process outside.
pub fn pid_namespace() -> Option<u64> {
    os::pid_namespace()
}

/// Raises the number of files this process may have open to what the system lets it have, at most `most`.
/// Every connection is one; the usual 1,024, or 256 on macOS, would turn clients away.
pub fn allow_open_files(most: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(most, |maximum| maximum.min(most));
    if current.is_some_and(|current| current < wanted) {
        // Where the system says no, what it allows has to do.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}

/// The number of files this process may have open; `None` where there is no limit.
pub fn open_file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current
}

/// The file descriptors of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFiles {
    /// How many of those within the limit are in use.
    pub used: u64,
    /// The limit in force.
    pub limit: u64,
}

/// The file descriptors of a process; `None` where they cannot be seen.
pub fn open_files(pid: u32) -> Option<OpenFiles> {
    os::open_files(pid)
}

/// What a file system is to those who wait for changes on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filesystem {
    /// Only this machine changes it, so every change can be reported.
    Local,
    /// Other machines, or a daemon, can change it unseen.
    Network,
    /// Nothing is known of it, or the system does not tell.
    Unknown,
}

/// The kind of file system that a directory is on.
pub fn filesystem(dir: &Path) -> Filesystem {
    os::filesystem(dir)
}

/// Whether this directory is on a file system that other machines, or a daemon, can change unseen.
///
/// Such file systems do not report every change, so a caller that watches them has to look as well.
/// Where the system cannot say, the answer is `false`.
pub fn is_network_filesystem(dir: &Path) -> bool {
    filesystem(dir) == Filesystem::Network
}

/// A new file in this directory that has no name yet and disappears with its handle; `None` where the system, or the file
/// system, has no such files or makes none now.
///
/// Nobody sees it before it has its name, and nothing is left of it when its writer is killed.
pub(crate) fn unnamed_file(dir: BorrowedFd<'_>) -> Option<File> {
    os::unnamed_file(dir)
}

/// Gives a file that has no name one that was free. What the error means for the name is for the caller to find out
/// another way, unless it is that the name is taken.
pub(crate) fn give_name(file: &File, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    os::give_name(file, dir, name)
}

/// Whether this is what the system calls a file that has no name, in the events of its directory.
pub(crate) fn is_unnamed(name: &str) -> bool {
    os::is_unnamed(name)
}

/// Whether a signal could be addressed to this pid, be it one that we may not send.
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

    /// The local ones that make inode numbers up at each mount: exFAT and FAT; NTFS3 may reuse them.
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
    /// The program's name stands in parentheses as the second field and may itself hold spaces and
    /// parentheses, so counting starts after the last one.
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
        // A name is a comfort.
        let _ = rustix::thread::set_name(name);
    }

    /// The kernel's link to the file that runs, also when that has lost its name.
    #[expect(clippy::unnecessary_wraps, reason = "other systems may not tell")]
    pub(super) fn own_program() -> io::Result<PathBuf> {
        Ok(PathBuf::from("/proc/self/exe"))
    }

    /// Functions of the kernel in which a process waits for a terminal's input, proc_pid_wchan(5).
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
                // The kernel does not tell, or not us.
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

    /// The moment so many ticks after the machine booted.
    pub(super) fn start_time(booted: i64, ticks: u64, per_second: u64) -> Option<Timestamp> {
        let millis = i64::try_from(ticks.checked_mul(1000)?.checked_div(per_second)?).ok()?;
        Timestamp::from_millisecond(booted.checked_mul(1000)?.checked_add(millis)?).ok()
    }

    /// `O_TMPFILE`, open(2).
    pub(super) fn unnamed_file(dir: BorrowedFd<'_>) -> Option<File> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
    }

    pub(super) fn give_name(file: &File, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
        // By its place in /proc: with the handle itself only root may do it.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(rustix::fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// The kernel calls it by the number of its inode.
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
            // A limit that was lowered closes nothing; it counts for new descriptors alone.
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

    pub(super) fn give_name(_file: &File, _dir: BorrowedFd<'_>, _name: &str) -> rustix::io::Result<()> {
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
