//! What ends programs of ours when we ourselves are killed and can end nothing any more.
//!
//! A guard is a second process of our own program. It holds the reading end of a pipe whose other end only we have,
//! and is told over it which process groups there are. When the pipe closes, however that came about, it kills what
//! is left. It takes no part in what a program and we say to each other.
//!
//! A group is not all: a program may have been started in the moment before we were killed, and programs can leave
//! their group. So each one also carries a mark in its environment, which what it starts inherits, and where the
//! system lets us look, everything with the mark is found.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, BufRead, PipeWriter, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};

use crate::platform::{self, ProcessStart};
use crate::process::{Child, Spawn, SpawnError};

/// The variable that carries the mark.
const MARK: &str = "SWITCHBOARD_GUARD";

/// How often the guard looks once more before it believes that nothing is left: what was being started while it
/// looked shows its mark a moment later.
const QUIET_LOOKS: u32 = 4;

/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// How often it looks at most. What cannot be killed is not going to be.
const LOOKS: u32 = 100;

/// A guard over programs. Cheap to clone; its process starts with the first program.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: OsString,
    args: Vec<OsString>,
    mark: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Running>,
    groups: BTreeSet<u32>,
}

#[derive(Debug)]
struct Running {
    pipe: PipeWriter,
    /// Held because dropping it ends the process.
    _process: Child,
}

/// A guard that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// There is no pipe to it.
    #[error("no pipe can be made: {0}")]
    Pipe(#[from] io::Error),
    /// Its process does not start.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
}

impl Guard {
    /// A guard whose process is this program with these arguments, and calls [`run`] with its stdin.
    pub fn new(program: impl Into<OsString>, args: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        let mark = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        Self(Arc::new(Inner { program: program.into(), args, mark, state: Mutex::default() }))
    }

    /// Marks a program that is about to be started, after the guard itself. Needs a Tokio runtime.
    pub fn mark(&self, spawn: Spawn) -> Result<Spawn, GuardError> {
        let mut state = self.0.state.lock();
        if state.running.is_none() {
            state.running = Some(self.start(&state.groups)?);
        }
        Ok(spawn.env(MARK, &self.0.mark))
    }

    /// Puts a started program's group under guard.
    pub fn watch(&self, group: u32) {
        let mut state = self.0.state.lock();
        state.groups.insert(group);
        state.tell(&format!("+{group}\n"));
    }

    /// Lets go of a group of which nothing is left.
    pub fn forget(&self, group: u32) {
        let mut state = self.0.state.lock();
        state.groups.remove(&group);
        state.tell(&format!("-{group}\n"));
    }

    fn start(&self, groups: &BTreeSet<u32>) -> Result<Running, GuardError> {
        let (reading, mut pipe) = io::pipe()?;
        let process = Spawn::new(&self.0.program).args(&self.0.args).stdin(Stdio::from(reading)).spawn()?;
        writeln!(pipe, "={}", self.0.mark)?;
        for group in groups {
            writeln!(pipe, "+{group}")?;
        }
        Ok(Running { pipe, _process: process })
    }
}

impl State {
    /// Tells the guard. One that was itself killed is started again with the next program.
    fn tell(&mut self, line: &str) {
        if let Some(running) = &mut self.running
            && let Err(error) = running.pipe.write_all(line.as_bytes())
        {
            tracing::warn!(%error, "the guard over our programs is gone");
            self.running = None;
        }
    }
}

/// Is the guard: reads what there is to watch until its input ends, and then kills it.
pub fn run(input: impl BufRead) -> io::Result<()> {
    let mut mark = None;
    let mut groups: BTreeMap<u32, Option<ProcessStart>> = BTreeMap::new();
    for line in input.lines() {
        // An input that breaks off is one that has ended.
        let Ok(line) = line else { break };
        match line.split_at_checked(1) {
            Some(("=", text)) => mark = Some(format!("{MARK}={text}")),
            Some(("+", group)) => {
                if let Ok(group) = group.parse() {
                    groups.insert(group, platform::process_started(group));
                }
            }
            Some(("-", group)) => {
                if let Ok(group) = group.parse::<u32>() {
                    groups.remove(&group);
                }
            }
            _ => {}
        }
    }
    for (group, start) in groups {
        kill_group(group, start.as_ref());
    }
    if let Some(mark) = mark {
        kill_marked(&mark);
    }
    Ok(())
}

/// Kills a group, unless its number belongs to a stranger by now: a number is not given again while a group has it,
/// so that it is a stranger's only if there is a process with another start.
fn kill_group(group: u32, start: Option<&ProcessStart>) {
    let now = platform::process_started(group);
    let is_stranger = match (start, &now) {
        (Some(then), Some(now)) => !then.may_equal(now),
        (None, Some(_)) => true,
        (_, None) => false,
    };
    if !is_stranger && let Some(pid) = pid(group) {
        // That nobody is left is as good as success.
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
}

fn kill_marked(mark: &str) {
    let mut quiet = 0;
    for _ in 0..LOOKS {
        let found = platform::processes_with_variable(mark);
        quiet = if found.is_empty() { quiet + 1 } else { 0 };
        if quiet == QUIET_LOOKS {
            return;
        }
        for pid in found.into_iter().filter_map(pid) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        thread::sleep(LOOK_PAUSE);
    }
}

fn pid(number: u32) -> Option<Pid> {
    i32::try_from(number).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
#[path = "guard_tests.rs"]
mod tests;
