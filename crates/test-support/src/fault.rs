//! Fault injection: a library that intercepts the file calls of a program through LD_PRELOAD (Linux only).

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::{NamedTempFile, TempDir};

use crate::process::command;
use crate::{files, tools};

/// C source of the library; the comment at its start lists what the library can do.
const SOURCE: &str = include_str!("fault.c");

/// Fault that is injected at one file call of a program. Calls are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The program is killed with SIGKILL instead of executing the call.
    Kill {
        /// Number of the call.
        at: usize,
    },
    /// Half of a write is executed, then the program is killed with SIGKILL (torn write).
    Tear {
        /// Number of the call.
        at: usize,
    },
    /// The disk is full from this call on (`ENOSPC`).
    NoSpace {
        /// Number of the call.
        from: usize,
    },
    /// The disk fails from this call on (`EIO`).
    IoError {
        /// Number of the call.
        from: usize,
    },
    /// The disk is read-only from this call on (`EROFS`).
    ReadOnly {
        /// Number of the call.
        from: usize,
    },
    /// Only this call fails (`EIO`).
    Once {
        /// Number of the call.
        at: usize,
    },
}

/// The compiled fault-injection library.
pub struct Shim {
    library: PathBuf,
}

impl Shim {
    /// Returns the library, compiled into `folder` unless an earlier run left it there.
    ///
    /// Returns the reason if the library cannot be compiled.
    pub fn get(folder: &Path) -> Result<Self, String> {
        if !cfg!(target_os = "linux") {
            return Err("faults are injected with LD_PRELOAD, which only Linux has".into());
        }
        let mut hasher = DefaultHasher::new();
        SOURCE.hash(&mut hasher);
        let library = folder.join(format!("libfault-{:016x}.so", hasher.finish()));
        if !library.exists() {
            // The library is built elsewhere and renamed into place, because other tests may build it concurrently.
            let making = TempDir::with_prefix_in("fault-", folder).map_err(|error| error.to_string())?;
            let (source, made) = (making.path().join("fault.c"), making.path().join("libfault.so"));
            files::put(&source, SOURCE);
            let mut cc = command("cc");
            cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).args([&made, &source]).arg("-ldl");
            tools::run(&mut cc)?;
            files::rename(&made, &library);
        }
        Ok(Self { library })
    }

    /// Configures a program so that the fault is injected into it.
    pub fn arm<'c>(&self, command: &'c mut Command, fault: Fault) -> &'c mut Command {
        let (action, at) = match fault {
            Fault::Kill { at } => ("kill", at),
            Fault::Tear { at } => ("tear", at),
            Fault::NoSpace { from } | Fault::IoError { from } | Fault::ReadOnly { from } => ("fail", from),
            Fault::Once { at } => ("once", at),
        };
        let error = match fault {
            Fault::NoSpace { .. } => rustix::io::Errno::NOSPC,
            Fault::ReadOnly { .. } => rustix::io::Errno::ROFS,
            _ => rustix::io::Errno::IO,
        };
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAULT_ACTION", action)
            .env("FAULT_AT", at.to_string())
            .env("FAULT_ERRNO", error.raw_os_error().to_string())
    }

    /// Runs a program and counts its calls into which a fault could be injected.
    pub fn count(&self, command: &mut Command) -> usize {
        let log = NamedTempFile::new().unwrap();
        command.env("LD_PRELOAD", &self.library).env("FAULT_LOG", log.path());
        tools::run(command).unwrap();
        std::fs::read_to_string(log.path()).unwrap().lines().count()
    }

    /// Configures a program so that the fault is injected only while `flag` exists.
    pub fn arm_while<'c>(&self, command: &'c mut Command, fault: Fault, flag: &Path) -> &'c mut Command {
        self.arm(command, fault).env("FAULT_WHILE", flag)
    }

    /// Configures a program so that its clock is this many days ahead.
    pub fn set_clock_ahead<'c>(&self, command: &'c mut Command, days: u32) -> &'c mut Command {
        let seconds = u64::from(days) * 86_400;
        command.env("LD_PRELOAD", &self.library).env("FAULT_CLOCK", seconds.to_string())
    }

    /// Configures a program so that its clock is this many days ahead while `flag` exists.
    pub fn step_clock_while<'c>(&self, command: &'c mut Command, days: u32, flag: &Path) -> &'c mut Command {
        self.set_clock_ahead(command, days).env("FAULT_WHILE", flag)
    }

    /// Configures a program so that it records in `folder` what it has synced.
    ///
    /// Each synced file is copied as of its last sync, and for each synced directory a list of lines `INODE NAME` is
    /// written. The name of a copy is the inode number.
    pub fn record_syncs<'c>(&self, command: &'c mut Command, folder: &Path) -> &'c mut Command {
        command.env("LD_PRELOAD", &self.library).env("FAULT_SYNCED", folder)
    }

    /// Configures a program so that it gets no file events, as when the user has exhausted the inotify limits.
    pub fn disable_file_events<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        command.env("LD_PRELOAD", &self.library).env("FAULT_DEAF", "1")
    }
}
