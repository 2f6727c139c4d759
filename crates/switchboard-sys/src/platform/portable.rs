//! Portable fallback for systems other than Linux, where most answers are unknown.

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

/// Returns true, because APFS and HFS+ store inode numbers.
pub(super) fn has_stable_inodes(_dir: &Path) -> bool {
    true
}

pub(super) fn pid_namespace() -> Option<u64> {
    None
}

pub(super) fn filesystem(_dir: &Path) -> super::Filesystem {
    super::Filesystem::Unknown
}
