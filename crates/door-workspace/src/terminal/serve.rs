//! Serves terminals that do not run under `switchboard run`: tmux panes, and terminals of other programs.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Door, Name, OFFLINE};
use switchboard_sys::platform::{self, ProcessStart};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::bridge;
use super::encode::dismiss_completion;
use super::executor::{ExecuteRequest, StartMark, TerminalExecutor};
use super::field::Obstacle;
use super::results::ExecuteResult;
use super::screen::InputMode;
use super::tmux::{Pane, PaneHolder};
use super::typist::{Step, Typist, check_field};
use crate::error::WorkspaceError;
use crate::state::{Loaded, objects, text};
use crate::workspace::{Workspace, blocking};

/// Notes topic: the panes that were registered with this hub.
pub(crate) const PANES: &str = "panes";

/// Returns the key of an agent's pane under [`PANES`].
pub(crate) fn pane_key(agent: &AgentId) -> String {
    agent.name.as_str().to_lowercase()
}

/// Poll interval of `state.json` for new terminals.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Retry interval for a message that waits for an input field.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Poll interval of a pane while text is typed into it.
const PANE_POLL: Duration = Duration::from_millis(60);

/// A terminal that `serve` can type into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) agent: AgentId,
    endpoint: Endpoint,
    /// Pid and start time of the registered process; `None` if the process is external.
    process: Option<(u32, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Endpoint {
    Pane(Pane),
    Bridge,
}

/// Types messages into tmux panes and other hosts until `shutdown`, if the settings allow it.
///
/// Messages accepted before this call are not typed. Agents that run under `switchboard run` are skipped.
pub async fn run_terminals(workspace: Workspace, shutdown: CancellationToken) -> Result<(), WorkspaceError> {
    let config = &workspace.config().terminals;
    if !config.tmux && !config.bridge {
        shutdown.cancelled().await;
        return Ok(());
    }
    if config.bridge
        && let Err(problem) = bridge::clear(&workspace).await
    {
        tracing::warn!(%problem, "bridge.json was not changed");
    }
    let mark = workspace.terminal_mark().await?;
    let mut workers: JoinSet<AgentId> = JoinSet::new();
    let mut known: HashMap<AgentId, CancellationToken> = HashMap::new();
    while !shutdown.is_cancelled() {
        match workspace.terminal_targets().await {
            Ok(targets) => {
                for target in targets {
                    if !known.contains_key(&target.agent) {
                        let stop = shutdown.child_token();
                        known.insert(target.agent.clone(), stop.clone());
                        workers.spawn(serve_terminal(workspace.clone(), target.agent, mark, stop));
                    }
                }
            }
            Err(error) => tracing::warn!(error = %error, "the terminals in state.json could not be read"),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(SCAN_INTERVAL) => {}
            Some(ended) = workers.join_next() => {
                // If the terminal still exists, the next poll starts a new worker for it.
                if let Ok(agent) = ended {
                    known.remove(&agent);
                }
            }
        }
    }
    // Let messages in progress finish; typing has its own timeout.
    while workers.join_next().await.is_some() {}
    Ok(())
}

impl Workspace {
    /// Returns the terminals in `state.json` into which the settings let `serve` type.
    pub(crate) async fn terminal_targets(&self) -> Result<Vec<Target>, WorkspaceError> {
        let config = self.config().terminals.clone();
        let state = self.state().clone();
        let targets = blocking(move || {
            let Loaded::State(state) = state.load()? else { return Ok(Vec::new()) };
            let is_allowed = |target: &Target| match target.endpoint {
                Endpoint::Pane(_) => config.tmux,
                Endpoint::Bridge => config.bridge,
            };
            let targets =
                objects(&state, "terminals").filter_map(|(name, record)| parse_target(name, record));
            Ok(targets.filter(is_allowed).collect())
        })
        .await?;
        let directory = self.hub().directory().await?;
        let canonical = |target: Target| Target { agent: directory.canonical(&target.agent), ..target };
        Ok(targets.into_iter().map(canonical).collect())
    }
}

fn parse_target(name: &str, record: &Map<String, Value>) -> Option<Target> {
    let agent = AgentId::local(Name::parse(name).ok()?);
    let endpoint = match record.get("pane") {
        None | Some(Value::Null) => Endpoint::Bridge,
        // Skip a terminal whose pane is misspelled: it is not a pane, and it does not belong to another host either.
        Some(pane) => Endpoint::Pane(Pane::parse(pane.as_str()?).ok()?),
    };
    if text(record, "statusState").as_deref() == Some(OFFLINE) {
        return None;
    }
    let is_external = record.get("external").and_then(Value::as_bool).unwrap_or(false);
    let pid = record.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
    let process =
        pid.filter(|_| !is_external).map(|pid| (pid, text(record, "processStart").unwrap_or_default()));
    Some(Target { agent, endpoint, process })
}

/// Serves one terminal until it is unregistered or `stop` is cancelled.
async fn serve_terminal(
    workspace: Workspace,
    agent: AgentId,
    mark: StartMark,
    stop: CancellationToken,
) -> AgentId {
    let worked = async {
        let mut executor = TerminalExecutor::without_lease(&workspace, &agent, mark);
        let (mut retry, mut has_typed) = (None, false);
        while !stop.is_cancelled() {
            if workspace.terminal_targets().await?.iter().all(|target| target.agent != agent) {
                return Ok(());
            }
            if executor.acquire_for_work().await? {
                let mut waits = false;
                while let Some(execute) = executor.poll().await? {
                    if type_message(&workspace, &mut executor, &execute, &mut has_typed).await?
                        == TypeResult::Waits
                    {
                        waits = true;
                        break;
                    }
                }
                executor.release();
                retry = waits.then_some(RETRY_INTERVAL);
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = executor.changed() => {}
                () = tokio::time::sleep(retry.unwrap_or_default()), if retry.is_some() => {}
            }
        }
        Ok::<(), WorkspaceError>(())
    };
    if let Err(error) = worked.await {
        tracing::warn!(%agent, error = %error, "a terminal could not be served");
    }
    agent
}

/// Result of handling one message at a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypeResult {
    /// The message has a final result.
    Done,
    /// The message waits, because the terminal is missing or accepts no text now.
    Waits,
}

/// Types one message if the terminal accepts text.
///
/// Until `has_typed` is set, the program may still be starting.
async fn type_message(
    workspace: &Workspace,
    executor: &mut TerminalExecutor,
    execute: &ExecuteRequest,
    has_typed: &mut bool,
) -> Result<TypeResult, WorkspaceError> {
    let targets = workspace.terminal_targets().await?;
    let Some(target) = targets.into_iter().find(|target| target.agent == *executor.agent()) else {
        return Ok(TypeResult::Waits);
    };
    // Send a single line, because only the terminal knows whether the program accepts several lines as a paste.
    let line = execute.text.replace(['\n', '\t'], " ");
    let holder = target.pane_holder(workspace).await?;
    if let (Endpoint::Pane(pane), false) = (&target.endpoint, target.has_exited())
        && let Ok(screen) = pane.screen(holder).await
        && let Err(obstacle) = check_field(&screen, None)
    {
        executor.record_waiting(execute, &obstacle.to_string()).await?;
        return Ok(TypeResult::Waits);
    }
    if !executor.start(execute).await? {
        return Ok(TypeResult::Done);
    }
    let typed = match (&target.endpoint, target.has_exited()) {
        (_, true) => Err("the process that was registered for this terminal has ended".to_owned()),
        (Endpoint::Pane(pane), false) => type_into_pane(pane, holder, execute, &line, !*has_typed).await,
        (Endpoint::Bridge, false) => {
            bridge::type_line(workspace, &target.agent, execute, &line).await.map(|()| None)
        }
    };
    *has_typed |= matches!(typed, Ok(None));
    let result = match typed {
        Ok(None) => ExecuteResult::Executed,
        Ok(Some(obstacle)) => {
            executor.requeue(execute, &obstacle.to_string()).await?;
            return Ok(TypeResult::Waits);
        }
        Err(reason) => ExecuteResult::Failed { reason },
    };
    executor.finish(execute, result).await?;
    Ok(TypeResult::Done)
}

/// Types one line into a pane.
///
/// Returns the obstacle if the line was not typed, or an error if it may have been typed.
async fn type_into_pane(
    pane: &Pane,
    holder: PaneHolder,
    execute: &ExecuteRequest,
    line: &str,
    is_first: bool,
) -> Result<Option<Obstacle>, String> {
    // In a pane, the person's keystrokes are not held back.
    let mut typist = Typist::new(line.to_owned(), None, false).starting(is_first);
    let began = Instant::now();
    loop {
        let screen = pane.screen(holder).await?;
        match typist.next_step(&screen, began.elapsed()) {
            Step::Wait => tokio::time::sleep(PANE_POLL).await,
            Step::Paste if screen.mode() == InputMode::Paste => {
                pane.paste(execute.message.id, &dismiss_completion(line)).await?;
            }
            Step::Paste => pane.paste(execute.message.id, line).await?,
            Step::Key(key) => pane.press(key).await?,
            Step::Enter => pane
                .press(b'\r')
                .await
                .map_err(|error| format!("the text was typed, but no Enter: {error}"))?,
            Step::Typed => return Ok(None),
            Step::NotTyped(Obstacle::NotSent) => return Err(Obstacle::NotSent.to_string()),
            Step::NotTyped(obstacle) => return Ok(Some(obstacle)),
        }
    }
}

impl Target {
    /// Returns the process to which the pane must belong.
    ///
    /// A pane that is named only in `state.json` may have come with a repository, so the pane must belong to the
    /// registered process.
    async fn pane_holder(&self, workspace: &Workspace) -> Result<PaneHolder, WorkspaceError> {
        let Endpoint::Pane(pane) = &self.endpoint else { return Ok(PaneHolder::Any) };
        let registered = workspace.hub().notes(Door::Workspace).get(PANES, &pane_key(&self.agent)).await?;
        let is_ours = registered.as_deref() == Some(pane.as_str());
        let process = self.process.as_ref().map(|(pid, _)| *pid);
        Ok(if is_ours { PaneHolder::Any } else { process.map_or(PaneHolder::Unknown, PaneHolder::Process) })
    }

    /// Returns true if the registered process has exited.
    ///
    /// Another program may then be using its terminal.
    fn has_exited(&self) -> bool {
        let Some((pid, mark)) = &self.process else { return false };
        !platform::process_started(*pid)
            .is_some_and(|start| start.may_equal(&ProcessStart::from_text(mark.as_str())))
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
