//! The idle hook, which waits for messages while a session is idle.
//!
//! Claude Code runs it in the background when a session starts or stops. When it exits with code 2, Claude Code wakes
//! the session and shows the hook's stderr to the model. One process waits per session; a newer process replaces the
//! older one. If another adapter shows the messages first, this process continues to wait.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use door_workspace::{PushPolicy, Workspace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use switchboard_core::{AgentId, Door};
use switchboard_sys::platform::{self, ProcessStart};
use switchboard_sys::process_identity::ProcessIdentity;

use super::input::Input;
use super::{Event, Hook, MAX_BYTES, agent, register_if_unknown};
use crate::context::Context;
use crate::failure::Failure;
use crate::log;

/// Topic of the hub's notes that record which process waits for which session.
const WAITING: &str = "waiting";

/// Default timeout; the hook's entry in the client's settings allows the same time.
const DAY: Duration = Duration::from_hours(24);

/// Poll interval at which the client's process is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Exit code on which the client wakes its session.
const WAKE: i32 = 2;

/// Returns true if the client can wake its session.
///
/// A session without a person, such as `claude -p`, runs this hook in the foreground and ends with it.
pub(super) fn can_wake() -> bool {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_interactive = variable("CLAUDE_CODE_ENTRYPOINT").is_none_or(|entry| entry == "cli");
    is_interactive && variable("CLAUDE_CODE_SESSION_ATTENDED").is_none_or(|attended| attended != "0")
}

pub(super) async fn run(args: &Hook, input: &Input, context: &Context) -> Result<(), Failure> {
    let limit = args.timeout.unwrap_or(DAY);
    let client = ClientProcess::of_this_hook();
    if !client.is_alive() {
        return Ok(());
    }
    // Stderr is shown to the model, so it must not contain logs.
    let held = log::Hold::start();
    let open = context.open_running().await?;
    let workspace = open.workspace.clone();
    let found = agent::of(args.client, args.agent.as_deref(), context, &workspace).await;
    let Some(agent) = found? else {
        open.close().await;
        return Ok(());
    };
    register_if_unknown(args.client, &workspace, &agent).await?;
    if let Some(status) = Event::Idle.status() {
        workspace.set_status(&agent, status, None).await?;
    }
    let slot = IdleSlot::acquire(&workspace, &agent, input.session_id.as_deref()).await?;
    let woken = tokio::time::timeout(limit, wait(&workspace, &agent, &slot, &client)).await;
    slot.release().await?;
    let woken = woken.unwrap_or(Ok(false))?;
    if woken {
        workspace.set_status(&agent, "working", None).await?;
    }
    open.close().await;
    if woken {
        std::process::exit(WAKE);
    }
    drop(held);
    Ok(())
}

/// Waits for messages and prints them. Returns false if waiting is no longer needed: the client exited, or another
/// process took the slot.
async fn wait(
    workspace: &Workspace,
    agent: &AgentId,
    slot: &IdleSlot<'_>,
    client: &ClientProcess,
) -> Result<bool, Failure> {
    let mut changes = workspace.hub().changes();
    let mut poll_timer = tokio::time::interval(POLL_INTERVAL);
    workspace.scan_mailbox(agent).await?;
    loop {
        if !client.is_alive() || !slot.is_held().await? {
            return Ok(false);
        }
        if let Some(digest) =
            workspace.digest(agent, PushPolicy { max_bytes: MAX_BYTES, include_announced: false }).await?
        {
            let mut err = std::io::stderr().lock();
            let written = writeln!(err, "{}", digest.text).and_then(|()| err.flush());
            drop(err);
            // If stderr was closed, the digest is not marked as shown.
            if written.is_err() {
                return Ok(false);
            }
            workspace.finish_digest(digest).await?;
            return Ok(true);
        }
        // Read the mailbox only after a change; the ticks only check that the client is alive.
        while tokio::select! { () = changes.next() => false, _ = poll_timer.tick() => client.is_alive() } {}
    }
}

/// The client's process, if the client reports its pid.
struct ClientProcess {
    process: Option<(u32, Option<ProcessStart>)>,
}

impl ClientProcess {
    /// Reads the pid from `CLAUDE_PID`. A client that does not set it is checked only by whether it reads our stderr.
    fn of_this_hook() -> Self {
        let pid = std::env::var("CLAUDE_PID").ok().and_then(|pid| pid.parse().ok());
        Self { process: pid.map(|pid| (pid, platform::process_started(pid))) }
    }

    /// Returns true if the client runs and reads our stderr. Another process that reuses the pid does not count.
    fn is_alive(&self) -> bool {
        let runs = self.process.as_ref().is_none_or(|(pid, started)| {
            let now = platform::process_started(*pid);
            started.as_ref().zip(now).is_some_and(|(started, now)| started.may_equal(&now))
        });
        runs && is_stderr_read()
    }
}

/// Returns true if a process reads our stderr. After the client was killed, this is true only if another process has
/// the read end open.
fn is_stderr_read() -> bool {
    let stderr = std::io::stderr();
    let mut polled = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut polled, Some(&at_once)) {
        Ok(_) => !polled[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL),
        Err(_) => true,
    }
}

/// Slot of the one process that waits beside a session.
struct IdleSlot<'w> {
    workspace: &'w Workspace,
    key: String,
    name: String,
}

impl<'w> IdleSlot<'w> {
    /// Acquires the slot. The previous holder finds the new owner in the slot and exits.
    async fn acquire(
        workspace: &'w Workspace,
        agent: &AgentId,
        session: Option<&str>,
    ) -> Result<Self, Failure> {
        let hub = workspace.hub();
        // Notes of dead processes are removed; otherwise each killed session would leave one behind.
        for (key, name) in hub.notes(Door::Workspace).all(WAITING).await? {
            if name.parse::<ProcessIdentity>().map_or(true, |owner| owner.has_exited()) {
                hub.notes(Door::Workspace).put(WAITING, key, None).await?;
            }
        }
        let key = format!("{} {}", agent.key(), session.unwrap_or("-"));
        let name = ProcessIdentity::this_process().to_string();
        hub.notes(Door::Workspace).put(WAITING, key.clone(), Some(name.clone())).await?;
        Ok(Self { workspace, key, name })
    }

    async fn is_held(&self) -> Result<bool, Failure> {
        let notes = self.workspace.hub().notes(Door::Workspace).all(WAITING).await?;
        Ok(notes.iter().any(|(key, name)| *key == self.key && *name == self.name))
    }

    async fn release(self) -> Result<(), Failure> {
        if self.is_held().await? {
            self.workspace.hub().notes(Door::Workspace).put(WAITING, self.key.clone(), None).await?;
        }
        Ok(())
    }
}
