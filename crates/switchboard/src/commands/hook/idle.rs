//! Waiting beside an idle session.
//!
//! Claude Code starts this when a session stops or begins, lets it run in the background, and wakes the session when it
//! ends with code 2: what is on stderr is put before the model. One waits per session; a later one sends the one
//! before it home. Whoever else shows the mail first has it, and this one goes on waiting.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::Duration;

use door_workspace::{PushPolicy, Workspace};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use switchboard_core::{AgentId, Door};
use switchboard_sys::owner::Owner;
use switchboard_sys::platform::{self, ProcessStart};

use super::input::Input;
use super::{Event, Hook, ROOM, agent, arrive};
use crate::context::Context;
use crate::failure::Failure;
use crate::log;

/// Under this topic the hub remembers who waits beside which session.
const WAITING: &str = "waiting";

/// How long without being told: the hook's entry in the client's settings allows as much.
const DAY: Duration = Duration::from_hours(24);

/// How often to look whether the client is still there.
const LOOK: Duration = Duration::from_millis(500);

/// By this exit code a client wakes its session.
const WAKE: i32 = 2;

/// Whether the client has a session that can be woken. One without a person at it, as `claude -p`, runs this hook in
/// the foreground and ends when it has ended.
pub(super) fn can_wake() -> bool {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let is_interactive = variable("CLAUDE_CODE_ENTRYPOINT").is_none_or(|entry| entry == "cli");
    is_interactive && variable("CLAUDE_CODE_SESSION_ATTENDED").is_none_or(|attended| attended != "0")
}

pub(super) async fn run(args: &Hook, input: &Input, context: &Context) -> Result<(), Failure> {
    let limit = args.timeout.unwrap_or(DAY);
    let client = ClientProcess::of_this_hook();
    if !client.is_there() {
        return Ok(());
    }
    // Stderr is for the model alone.
    let held = log::Hold::begin();
    let open = context.open_running().await?;
    let workspace = open.workspace.clone();
    let found = agent::of(args.client, args.agent.as_deref(), context, &workspace).await;
    let Some(agent) = found? else {
        open.close().await;
        return Ok(());
    };
    arrive(args.client, &workspace, &agent).await?;
    if let Some(status) = Event::Idle.status() {
        workspace.set_status(&agent, status, None).await?;
    }
    let seat = Seat::take(&workspace, &agent, input.session_id.as_deref()).await?;
    let woken = tokio::time::timeout(limit, wait(&workspace, &agent, &seat, &client)).await;
    seat.leave().await?;
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

/// Waits for mail and shows it. False where it is not needed any more: the client is gone, or another one waits.
async fn wait(
    workspace: &Workspace,
    agent: &AgentId,
    seat: &Seat<'_>,
    client: &ClientProcess,
) -> Result<bool, Failure> {
    let mut changes = workspace.hub().changes();
    let mut look = tokio::time::interval(LOOK);
    workspace.scan_mailbox(agent).await?;
    loop {
        if !client.is_there() || !seat.is_ours().await? {
            return Ok(false);
        }
        if let Some(digest) =
            workspace.digest(agent, PushPolicy { max_bytes: ROOM, include_announced: false }).await?
        {
            let mut err = std::io::stderr().lock();
            let said = writeln!(err, "{}", digest.text).and_then(|()| err.flush());
            drop(err);
            // What nobody has heard is let go with the digest.
            if said.is_err() {
                return Ok(false);
            }
            workspace.finish_digest(digest).await?;
            return Ok(true);
        }
        // A change is worth a look at the mail; otherwise only the client may have gone.
        while tokio::select! { () = changes.next() => false, _ = look.tick() => client.is_there() } {}
    }
}

/// The client's process, as far as the client tells which it is.
struct ClientProcess {
    process: Option<(u32, Option<ProcessStart>)>,
}

impl ClientProcess {
    /// The one of `CLAUDE_PID`; a client that does not set it is known by its end of our stderr alone.
    fn of_this_hook() -> Self {
        let pid = std::env::var("CLAUDE_PID").ok().and_then(|pid| pid.parse().ok());
        Self { process: pid.map(|pid| (pid, platform::process_started(pid))) }
    }

    /// Whether it runs and hears us. A later process with the same pid does not count.
    fn is_there(&self) -> bool {
        let runs = self.process.as_ref().is_none_or(|(pid, started)| {
            let now = platform::process_started(*pid);
            started.as_ref().zip(now).is_some_and(|(started, now)| started.may_equal(&now))
        });
        runs && is_heard()
    }
}

/// Whether somebody reads our stderr. A client that was killed does not, unless another process holds its end open.
fn is_heard() -> bool {
    let stderr = std::io::stderr();
    let mut polled = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut polled, Some(&at_once)) {
        Ok(_) => !polled[0].revents().intersects(PollFlags::ERR | PollFlags::NVAL),
        Err(_) => true,
    }
}

/// The place of the one who waits beside a session.
struct Seat<'w> {
    workspace: &'w Workspace,
    key: String,
    name: String,
}

impl<'w> Seat<'w> {
    /// Takes the place. Whoever had it finds another name there and goes.
    async fn take(workspace: &'w Workspace, agent: &AgentId, session: Option<&str>) -> Result<Self, Failure> {
        let hub = workspace.hub();
        // Those of the dead are cleared away, or every session that was killed would leave one behind.
        for (key, name) in hub.notes(Door::Workspace, WAITING).await? {
            if name.parse::<Owner>().map_or(true, |owner| owner.is_gone()) {
                hub.put_note(Door::Workspace, WAITING, key, None).await?;
            }
        }
        let key = format!("{} {}", agent.key(), session.unwrap_or("-"));
        let name = Owner::this_process().to_string();
        hub.put_note(Door::Workspace, WAITING, key.clone(), Some(name.clone())).await?;
        Ok(Self { workspace, key, name })
    }

    async fn is_ours(&self) -> Result<bool, Failure> {
        let notes = self.workspace.hub().notes(Door::Workspace, WAITING).await?;
        Ok(notes.iter().any(|(key, name)| *key == self.key && *name == self.name))
    }

    async fn leave(self) -> Result<(), Failure> {
        if self.is_ours().await? {
            self.workspace.hub().put_note(Door::Workspace, WAITING, self.key.clone(), None).await?;
        }
        Ok(())
    }
}
