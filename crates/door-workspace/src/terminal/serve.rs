//! Terminals that nobody runs under `switchboard run`: tmux panes, and those of other programs.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value};
use switchboard_core::{AgentId, Door, Name, OFFLINE};
use switchboard_hub::platform::{self, ProcessStart};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::bridge;
use super::post::{Execute, Mark, TerminalPost};
use super::results::ExecuteResult;
use super::tmux::Pane;
use crate::error::WorkspaceError;
use crate::state::{Loaded, objects, text};
use crate::workspace::{Workspace, blocking};

/// Topic of the notes that say which panes were registered with this hub.
pub(crate) const PANES: &str = "panes";

/// The key of an agent's pane in those notes.
pub(crate) fn pane_key(agent: &AgentId) -> String {
    agent.name.as_str().to_lowercase()
}

/// How often `state.json` is looked at for terminals that registered.
const LOOK: Duration = Duration::from_secs(1);

/// A terminal that `serve` has a way to type into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) agent: AgentId,
    way: Way,
    /// The registered process, where it can be told whether it is still the same.
    process: Option<(u32, String)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Way {
    Pane(Pane),
    Bridge,
}

/// Types into tmux panes and hands over to other hosts, where the settings allow it, until `shutdown`.
///
/// What was accepted before is not typed. An agent that somebody runs under `switchboard run` is left to it.
pub async fn run_terminals(workspace: Workspace, shutdown: CancellationToken) -> Result<(), WorkspaceError> {
    let config = &workspace.config().terminals;
    if !config.tmux && !config.bridge {
        shutdown.cancelled().await;
        return Ok(());
    }
    if config.bridge
        && let Err(problem) = bridge::clear(&workspace).await
    {
        tracing::warn!(%problem, "bridge.json was left as it is");
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
                        workers.spawn(work(workspace.clone(), target.agent, mark, stop));
                    }
                }
            }
            Err(error) => tracing::warn!(error = %error, "the terminals in state.json could not be read"),
        }
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = tokio::time::sleep(LOOK) => {}
            Some(ended) = workers.join_next() => {
                // One that is still there is served anew at the next look.
                if let Ok(agent) = ended {
                    known.remove(&agent);
                }
            }
        }
    }
    // What was begun is finished: typing has a time limit of its own.
    while workers.join_next().await.is_some() {}
    Ok(())
}

impl Workspace {
    /// The terminals in `state.json` that the settings let `serve` type into.
    pub(crate) async fn terminal_targets(&self) -> Result<Vec<Target>, WorkspaceError> {
        let config = self.config().terminals.clone();
        let state = self.state().clone();
        let targets = blocking(move || {
            let Loaded::State(state) = state.load()? else { return Ok(Vec::new()) };
            let is_allowed = |target: &Target| match target.way {
                Way::Pane(_) => config.tmux,
                Way::Bridge => config.bridge,
            };
            let targets = objects(&state, "terminals").filter_map(|(name, record)| target(name, record));
            Ok(targets.filter(is_allowed).collect())
        })
        .await?;
        let directory = self.hub().directory().await?;
        let canonical = |target: Target| Target { agent: directory.canonical(&target.agent), ..target };
        Ok(targets.into_iter().map(canonical).collect())
    }
}

fn target(name: &str, record: &Map<String, Value>) -> Option<Target> {
    let agent = AgentId::local(Name::parse(name).ok()?);
    let way = match record.get("pane") {
        None | Some(Value::Null) => Way::Bridge,
        // A pane that is not spelled right is no pane, and not the business of another host either.
        Some(pane) => Way::Pane(Pane::parse(pane.as_str()?).ok()?),
    };
    if text(record, "statusState").as_deref() == Some(OFFLINE) {
        return None;
    }
    let is_external = record.get("external").and_then(Value::as_bool).unwrap_or(false);
    let pid = record.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok());
    let process =
        pid.filter(|_| !is_external).map(|pid| (pid, text(record, "processStart").unwrap_or_default()));
    Some(Target { agent, way, process })
}

/// Works for one terminal until it is no longer there.
async fn work(workspace: Workspace, agent: AgentId, mark: Mark, stop: CancellationToken) -> AgentId {
    let worked = async {
        let mut post = TerminalPost::unclaimed(&workspace, &agent, mark);
        while !stop.is_cancelled() {
            if workspace.terminal_targets().await?.iter().all(|target| target.agent != agent) {
                return Ok(());
            }
            if post.claim_for_work().await? {
                while let Some(execute) = post.look().await?
                    && type_one(&workspace, &mut post, &execute).await?
                {}
                post.release();
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = post.changed() => {}
            }
        }
        Ok::<(), WorkspaceError>(())
    };
    if let Err(error) = worked.await {
        tracing::warn!(%agent, error = %error, "a terminal could not be served");
    }
    agent
}

/// Types one message; false where there is no terminal any more to type into.
async fn type_one(
    workspace: &Workspace,
    post: &mut TerminalPost,
    execute: &Execute,
) -> Result<bool, WorkspaceError> {
    let targets = workspace.terminal_targets().await?;
    let Some(target) = targets.into_iter().find(|target| target.agent == *post.agent()) else {
        return Ok(false);
    };
    if !post.begin(execute).await? {
        return Ok(true);
    }
    // One line: whether the program takes lines as a paste is known to its terminal alone.
    let line = execute.text.replace(['\n', '\t'], " ");
    let typed = match (&target.way, target.is_gone()) {
        (_, true) => Err("the process that was registered for this terminal has ended".to_owned()),
        (Way::Pane(pane), false) => {
            // state.json may have come with a repository: what it says of panes is checked, unless it was registered here.
            let registered = workspace.hub().noted(Door::Workspace, PANES, &pane_key(&target.agent)).await?;
            let is_ours = registered.as_deref() == Some(pane.as_str());
            let holds = (!is_ours).then(|| target.process.as_ref().map(|(pid, _)| *pid));
            pane.type_line(execute.message.id, &line, holds).await
        }
        (Way::Bridge, false) => bridge::type_line(workspace, &target.agent, execute, &line).await,
    };
    let result = match typed {
        Ok(()) => ExecuteResult::Executed,
        Err(reason) => ExecuteResult::Failed { reason },
    };
    post.finish(execute, result).await?;
    Ok(true)
}

impl Target {
    /// Whether the registered process has ended, so that whoever is in its terminal now is somebody else.
    fn is_gone(&self) -> bool {
        let Some((pid, mark)) = &self.process else { return false };
        !platform::process_started(*pid)
            .is_some_and(|start| start.may_equal(&ProcessStart::from_text(mark.as_str())))
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
