//! Linux implementation: `/proc`, file system types and unnamed files.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags};

use super::Filesystem;
use rustix::fd::AsRawFd;

/// Magic numbers of network file systems, as in `statfs(2)`.
///
/// They are NFS, SMB2, CIFS, 9P, FUSE, SMB, AFS (two), Ceph, Coda, OCFS2, GFS2, Lustre, and the shared folders of
/// VirtualBox and VMware.
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

/// Magic numbers of local file systems, as in `statfs(2)`.
///
/// They are ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs, ramfs, JFS, ReiserFS, NTFS3, exFAT and
/// FAT.
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

/// Magic numbers of local file systems without stable inode numbers.
///
/// exFAT and FAT assign inode numbers at each mount, and NTFS3 may reuse them.
const UNSTABLE_MAGICS: [i128; 3] = [0x7366_746E, 0x2011_BAB0, 0x4D44];

/// Number of the machine's initial pid namespace: `PROC_PID_INIT_INO`, a constant of the kernel.
const MACHINE_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProcessStat {
    Running(String),
    Ended,
}

pub(super) fn process_stat(pid: u32) -> Option<ProcessStat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the content of `/proc/<pid>/stat`; see proc_pid_stat(5).
///
/// The second field is the program's name in parentheses. The name may itself contain spaces and parentheses, so fields
/// are counted after the last closing parenthesis.
pub(super) fn parse_stat(stat: &str) -> Option<ProcessStat> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") {
        return Some(ProcessStat::Ended);
    }
    // The state is field 3 and `starttime` is field 22, so 18 fields lie between them.
    let ticks = fields.nth(18)?;
    ticks.bytes().all(|byte| byte.is_ascii_digit()).then(|| ProcessStat::Running(ticks.to_owned()))
}

pub(super) fn is_process_stopped(pid: u32) -> Option<bool> {
    parse_stopped(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the state of a process, field 3 of `/proc/<pid>/stat`.
///
/// The state is `T` if a signal stopped the process, and `t` if a debugger did.
pub(super) fn parse_stopped(stat: &str) -> Option<bool> {
    let (_, after_name) = stat.rsplit_once(')')?;
    Some(matches!(after_name.split_ascii_whitespace().next()?, "T" | "t"))
}

pub(super) fn processes_with_variable(variable: &str) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|item| item == variable.as_bytes()))
    };
    pids.filter(has_it).collect()
}

/// Sets `PR_SET_CHILD_SUBREAPER` for this process; see prctl(2).
pub(super) fn become_subreaper() -> bool {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
}

pub(super) fn set_process_name(name: &CStr) {
    // A failure is ignored, because the name is only cosmetic.
    let _ = rustix::thread::set_name(name);
}

/// Returns the kernel's link to the running file, which is valid even after the file was deleted.
#[expect(clippy::unnecessary_wraps, reason = "other systems may not tell")]
pub(super) fn own_program() -> io::Result<PathBuf> {
    Ok(PathBuf::from("/proc/self/exe"))
}

/// Kernel functions in which a process waits for terminal input; see proc_pid_wchan(5).
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
            // The kernel does not report the function, or not to this user.
            Ok("" | "0") | Err(_) => is_told = false,
            Ok(_) => {}
        }
    }
    is_told.then_some(false)
}

/// Relation of a process to its terminal; see proc_pid_stat(5).
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

    /// Parses the content of `/proc/<pid>/stat`.
    ///
    /// The fields after the name are state, parent, group, session, terminal, and the terminal's foreground group.
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

/// Parses the line `btime` of `/proc/stat`, in seconds since 1970; see proc_stat(5).
pub(super) fn parse_boot_time(stat: &str) -> Option<i64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Returns the time at this number of clock ticks after boot.
pub(super) fn start_time(booted: i64, ticks: u64, per_second: u64) -> Option<Timestamp> {
    let millis = i64::try_from(ticks.checked_mul(1000)?.checked_div(per_second)?).ok()?;
    Timestamp::from_millisecond(booted.checked_mul(1000)?.checked_add(millis)?).ok()
}

/// Creates an unnamed file with `O_TMPFILE`; see open(2).
pub(super) fn unnamed_file(dir: BorrowedFd<'_>) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR).ok().map(File::from)
}

pub(super) fn link_unnamed(file: &File, dir: BorrowedFd<'_>, name: &str) -> rustix::io::Result<()> {
    // The file is linked through its path in /proc, because only root may link the handle itself.
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::linkat(rustix::fs::CWD, path, dir, name, AtFlags::SYMLINK_FOLLOW)
}

/// Returns true for a name such as `#123`: the kernel names an unnamed file by its inode number.
pub(super) fn is_unnamed(name: &str) -> bool {
    name.strip_prefix('#').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
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
        // Lowering the limit closes no descriptors, so descriptors above the limit are not counted.
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
