//! The root: starts reapers and kills what one leaves behind that was itself killed.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use rustix::process::Pid;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, sleep};

use super::{KILL_LIMIT, KILL_PAUSE, Rest, children, collect, kill, own_process, pid, watch_over, wire};

pub(super) struct Root {
    control: UnixStream,
    /// What each reaper has as its stdout: a pipe that ends with this process.
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

    /// Starts reapers until the host ends, and then waits until nothing is left of their programs.
    pub(super) async fn run(mut self) -> io::Result<()> {
        watch_over()?;
        let mut ended = signal(SignalKind::child())?;
        let mut is_left = false;
        loop {
            tokio::select! {
                _ = ended.recv() => drop(self.collect().await),
                message = wire::receive(&self.control) => match message {
                    Ok(Some((wire::START, mut fds))) => {
                        if let Some(control) = fds.pop()
                            && let Err(error) = self.start(control)
                        {
                            // The host sees that the socket is closed.
                            tracing::warn!(%error, "a reaper cannot be started");
                        }
                    }
                    Ok(Some((wire::LEAVE, _))) => is_left = true,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                },
            }
        }
        if is_left {
            return Ok(());
        }
        // The reapers see the end of the host as well and have their time to kill.
        let until = Instant::now() + KILL_LIMIT;
        while self.collect().await == Rest::Some && Instant::now() < until {
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

    /// Collects those that have ended. What a reaper left behind is killed before its host hears that it is gone.
    async fn collect(&mut self) -> Rest {
        let mut gone = Vec::new();
        let rest = collect(|pid, _| gone.extend(self.reapers.remove(&pid)));
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
            // The orphans of a reaper that ends meanwhile are found by the next round.
            collect(|pid, _| gone.extend(self.reapers.remove(&pid)));
        }
    }
}
