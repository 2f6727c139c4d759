//! The verb `switchboard who`.

use std::collections::BTreeMap;

use clap::Args;
use door_channels::PresenceEntry;
use door_workspace::Workspace;
use jiff::Timestamp;
use serde_json::json;
use switchboard_core::{AgentId, AgentRecord, Door, Presence, PresenceState, Route};
use switchboard_hub::Hub;
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Show which agents are awake.
///
/// It covers agents behind every door: workspace, channels, workers, swarms and linked hubs.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard who",
    "switchboard who codex",
])]
pub(crate) struct Who {
    /// Show only this agent
    agent: Option<String>,
}

/// One agent with its latest presence from any door.
struct Row<'d> {
    id: AgentId,
    record: Option<&'d AgentRecord>,
    awareness: PresenceState,
    doing: Option<String>,
    since: Option<Timestamp>,
    channel: Option<String>,
    pid: Option<u32>,
    error: Option<String>,
}

pub(crate) async fn run(args: Who, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let hub = workspace.hub();
    let directory = hub.directory().await?;
    load_presence(hub).await?;
    let mut entries: BTreeMap<AgentId, PresenceEntry> = context
        .presence_entries(&workspace)
        .await?
        .into_iter()
        .map(|entry| (directory.canonical(&entry.agent.clone().into()), entry))
        .collect();
    let known = directory.agents().map(|record| (record.id.clone(), Some(record)));
    let mut agents: BTreeMap<AgentId, Option<&AgentRecord>> = known.collect();
    for id in entries.keys() {
        agents.entry(id.clone()).or_insert(None);
    }
    if let Some(name) = &args.agent {
        let id: AgentId = name.parse()?;
        let id = directory.addressee(&id).map_or(id, |record| record.id.clone());
        if !agents.contains_key(&id) {
            // This call only produces the error, which suggests similar names.
            switchboard_actions::known_agent(&workspace, name)
                .await
                .map_err(|error| Failure::of_action("who", error))?;
        }
        agents.retain(|agent, _| *agent == id);
    }
    let mut table = vec![["AGENT", "STATE", "DOING", "LAST SEEN", "CHANNEL", "PID"].map(str::to_owned)];
    for (id, record) in agents {
        let row = Row::new(hub.agents().presence(&id), record, entries.remove(&id));
        if context.printer.is_json() {
            print_json(&context, &workspace, &row).await?;
        } else {
            table.push(row.cells(hub.now()));
        }
    }
    if !context.printer.is_json() {
        print_table(&context, &table);
    }
    workspace.close().await;
    Ok(())
}

/// Loads the presence that other processes recorded for the router's nodes and for agents of other hubs.
pub(crate) async fn load_presence(hub: &Hub) -> Result<(), Failure> {
    door_nats::load_remote_presence(hub).await?;
    door_workers::load_node_presence(hub).await?;
    Ok(())
}

impl<'d> Row<'d> {
    /// Merges the presence records: the latest sign of life counts. A watcher's entry also has its host and process.
    fn new(presence: Presence, record: Option<&'d AgentRecord>, entry: Option<PresenceEntry>) -> Self {
        let mut row = Self {
            id: presence.agent,
            record,
            awareness: presence.state,
            doing: presence.status,
            since: presence.since,
            channel: None,
            pid: None,
            error: None,
        };
        let Some(seen) = entry else {
            row.channel = record.filter(|record| record.hub().is_some()).and_then(channels_of);
            return row;
        };
        if row.since.is_none_or(|since| since <= seen.since) || row.awareness != PresenceState::Awake {
            (row.awareness, row.doing) = (seen.awareness, seen.substate.map(|word| word.to_lowercase()));
            row.since = Some(seen.since);
        }
        (row.channel, row.pid, row.error) = (seen.channel, seen.pid, seen.error);
        row
    }

    fn cells(&self, now: Timestamp) -> [String; 6] {
        let or_dash = |text: Option<String>| show::inline(&text.unwrap_or_else(|| "-".to_owned()));
        let doing = match (&self.doing, &self.error) {
            (Some(doing), Some(error)) => Some(format!("{doing} ({error})")),
            (doing, error) => doing.clone().or(error.clone()),
        };
        [
            self.id.to_string(),
            self.awareness.to_string(),
            or_dash(doing.filter(|_| self.awareness != PresenceState::Offline)),
            or_dash(self.since.map(|at| format_ago(now, at))),
            or_dash(self.channel.clone()),
            or_dash(self.pid.map(|pid| pid.to_string())),
        ]
    }
}

/// Returns the channels that an agent reads, separated by commas; `None` if it reads none.
fn channels_of(record: &AgentRecord) -> Option<String> {
    let channel = |route: &Route| match route {
        Route::Channel { channel } => Some(channel.to_string()),
        _ => None,
    };
    let channels: Vec<String> = record.routes.iter().filter_map(channel).collect();
    (!channels.is_empty()).then(|| channels.join(","))
}

async fn print_json(context: &Context, workspace: &Workspace, row: &Row<'_>) -> Result<(), Failure> {
    let routes = row.record.map(|record| record.routes.as_slice()).unwrap_or_default();
    let mut doors: Vec<&str> = routes.iter().map(Route::door).map(Door::as_str).collect();
    doors.sort_unstable();
    doors.dedup();
    context.printer.object(&json!({
        "name": row.id.to_string(),
        "doors": doors,
        "role": row.record.and_then(|record| record.role.as_deref()),
        "team": row.record.and_then(|record| record.team.as_ref()).map(ToString::to_string),
        "presence": row.awareness.as_str(),
        "since": row.since.map(|at| at.to_string()),
        "unread": crate::commands::agents::unread(workspace, &row.id).await?,
        "status": row.doing,
        "channel": row.channel,
        "pid": row.pid,
        "error": row.error,
    }));
    Ok(())
}

fn print_table(context: &Context, rows: &[[String; 6]]) {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..6).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        context.printer.line(cells.join("  ").trim_end());
    }
}
