//! The root, which starts reapers and kills the orphans of a reaper that was killed.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::Pid;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::{KILL_LIMIT, KILL_PAUSE, Rest, become_supervisor, children, kill, own_process, pid, reap};
use crate::reaper::wire;

pub(super) struct Root {
    control: UnixStream,
    /// Stdout of each reaper: a pipe that closes when the root exits.
    lifeline: OwnedFd,
    _held: OwnedFd,
    /// The reapers, each with a copy of its control socket.
    reapers: HashMap<Pid, OwnedFd>,
}

impl Root {
    pub(super) fn new(control: UnixStream) -> io::Result<Self> {
        let (lifeline, held) = io::pipe()?;
        Ok(Self { control, lifeline: lifeline.into(), _held: held.into(), reapers: HashMap::new() })
    }

    /// Starts reapers until the host exits, and then waits until none of their programs remain.
    pub(super) async fn run(mut self) -> io::Result<()> {
        become_supervisor()?;
        let mut ended = signal(SignalKind::child())?;
        let mut is_detached = false;
        loop {
            tokio::select! {
                _ = ended.recv() => drop(self.reap().await),
                message = wire::receive(&self.control) => match message {
                    Ok(Some((wire::START, mut fds))) => {
                        if let Some(control) = fds.pop()
                            && let Err(error) = self.start(control)
                        {
                            // No report is needed, because the host detects the closed socket.
                            tracing::warn!(%error, "a reaper cannot be started");
                        }
                    }
                    Ok(Some((wire::DETACH, _))) => is_detached = true,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                },
            }
        }
        if is_detached {
            return Ok(());
        }
        // The reapers detect the exit of the host as well and get time to kill their programs.
        let until = Instant::now() + KILL_LIMIT;
        while self.reap().await == Rest::Some && Instant::now() < until {
            sleep(KILL_PAUSE).await;
        }
        self.reapers.clear();
        self.kill_orphans().await;
        Ok(())
    }

    fn start(&mut self, control: OwnedFd) -> io::Result<()> {
        let mut command = own_process(control.try_clone()?)?;
        let reaper = command.process_group(0).stdout(Stdio::from(self.lifeline.try_clone()?)).spawn()?;
        let reaper = pid(reaper.id()).ok_or_else(|| io::Error::other("a reaper has no process id"))?;
        self.reapers.insert(reaper, control);
        Ok(())
    }

    /// Reaps exited reapers. The orphans of a reaper are killed before the host learns that the reaper has exited.
    async fn reap(&mut self) -> Rest {
        let mut gone = Vec::new();
        let rest = reap(|pid, _| gone.extend(self.reapers.remove(&pid)));
        if !gone.is_empty() && rest == Rest::Some {
            self.kill_orphans().await;
        }
        rest
    }

    async fn kill_orphans(&mut self) {
        let until = Instant::now() + KILL_LIMIT;
        let mut gone = Vec::new();
        loop {
            let mut orphans = children();
            orphans.retain(|orphan| !self.reapers.contains_key(orphan));
            if orphans.is_empty() || Instant::now() >= until {
                return;
            }
            orphans.into_iter().for_each(kill);
            sleep(KILL_PAUSE).await;
            // The next round finds the orphans of a reaper that exits meanwhile.
            reap(|pid, _| gone.extend(self.reapers.remove(&pid)));
        }
    }
}
