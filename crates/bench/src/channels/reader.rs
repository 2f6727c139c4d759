//! Readers of the baselines, and the program that watchers start.
//!
//! Each reader runs in its own process and writes a byte for each new message file.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use clap::ValueEnum;
use switchboard_sys::process::Spawn;

/// Byte that is written once, as soon as every later change will be noticed.
pub(crate) const READY: u8 = b'r';

/// Byte that is written for each message.
pub(crate) const MAIL: u8 = b'm';

/// Poll interval of the protocol's own watchers.
const CYCLE: Duration = Duration::from_secs(2);

/// How a reader waits, and how it reacts to a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitMode {
    /// Waits for inotify events of the folder.
    Inotify,
    /// Waits for inotify events of the folder, and starts a program for each message.
    InotifyProgram,
    /// Lists the folder every two seconds.
    Polling,
}

impl WaitMode {
    /// Returns the name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inotify => "inotify",
            Self::InotifyProgram => "inotify-program",
            Self::Polling => "polling",
        }
    }
}

/// Waits for message files in a folder until the parent process kills this one.
pub(crate) async fn run(folder: &Path, by: WaitMode) -> anyhow::Result<()> {
    match by {
        WaitMode::Polling => poll(folder).await,
        WaitMode::Inotify => inotify(folder, |_| write_byte(MAIL)),
        WaitMode::InotifyProgram => inotify(folder, |folder| {
            let program = std::env::current_exe()?;
            let spawn =
                Spawn::new(program).args(["channel-program".as_ref(), "--dir".as_ref(), folder.as_os_str()]);
            // The program ends by itself, and the reader is only to start it.
            std::mem::forget(spawn.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?);
            Ok(())
        }),
    }
}

/// Runs as the program of a watcher: reports its start over the pipe in its folder, and answers.
pub(crate) fn program(folder: &Path) -> anyhow::Result<()> {
    std::fs::OpenOptions::new().write(true).open(pipe(folder))?.write_all(&[MAIL])?;
    Ok(writeln!(std::io::stdout(), "done")?)
}

/// Returns the pipe on which programs report their start.
pub(crate) fn pipe(folder: &Path) -> PathBuf {
    folder.join("pipe")
}

async fn poll(folder: &Path) -> anyhow::Result<()> {
    let names = || -> std::io::Result<HashSet<_>> {
        std::fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    };
    let mut seen = names()?;
    write_byte(READY)?;
    loop {
        tokio::time::sleep(CYCLE).await;
        for name in names()? {
            if name.as_encoded_bytes().starts_with(b"msg-") && seen.insert(name) {
                write_byte(MAIL)?;
            }
        }
    }
}

#[cfg(target_os = "linux")]
fn inotify(folder: &Path, mut hear: impl FnMut(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};
    let events = init(CreateFlags::CLOEXEC)?;
    add_watch(&events, folder, WatchFlags::CREATE | WatchFlags::MOVED_TO)?;
    write_byte(READY)?;
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = Reader::new(events, &mut buffer);
    loop {
        let event = events.next()?;
        if event.file_name().is_some_and(|name| name.to_bytes().starts_with(b"msg-")) {
            hear(folder)?;
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn inotify(_: &Path, _: impl FnMut(&Path) -> anyhow::Result<()>) -> anyhow::Result<()> {
    anyhow::bail!("the baseline waits by inotify, which only Linux has")
}

fn write_byte(byte: u8) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&[byte])?;
    Ok(stdout.flush()?)
}
