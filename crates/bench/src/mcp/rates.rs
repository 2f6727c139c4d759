//! Calls per second of a server, sequential and concurrent, and the size of its tool list.
//!
//! `stdio` is `switchboard mcp` in a workspace without `serve`. `attached` is `switchboard mcp` in a workspace where
//! `serve` answers the calls, which adds a process. `http` is `serve` itself, with one connection and one session for
//! each call in flight.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::json;
use switchboard_sys::files::{Dir, Durability};
use tokio::task::JoinSet;

use super::http::{Connection, Serve};
use super::pipe::{Client, Server};
use super::{BENCH, NODE, fresh, workspace};
use crate::figure::{Figure, Target};
use crate::load::{READER, sender};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, rate};

/// Numbers of calls in flight.
const IN_FLIGHT: [usize; 2] = [1, 32];

/// Target for our rates, relative to the minimal Node server.
const ENOUGH: Target = Target::AtLeast(1.5);

/// Number of warm-up calls per round, which do not count.
const WARM_UP: usize = 50;

/// Tool profiles, by their names in the configuration.
const PROFILES: [&str; 3] = ["minimal", "messaging", "full"];

pub(super) async fn run(
    node: &Server,
    place: &RunFolder,
    (rounds, calls): (usize, usize),
) -> anyhow::Result<()> {
    let folder = place.fresh()?;
    workspace(&folder).await?;
    let serve = Serve::start(&folder).await?;
    let (alone, attached) = (fresh(place).await?, Server::ours(&sender(0), &folder));
    for in_flight in IN_FLIGHT {
        let [mut by_pipe, mut by_socket, mut by_http, mut theirs] = [const { Vec::new() }; 4];
        for _ in 0..rounds {
            RunFolder::settle();
            by_pipe.push(rate(calls, piped(&alone, "check_inbox", in_flight, calls).await?));
            by_socket.push(rate(calls, piped(&attached, "check_inbox", in_flight, calls).await?));
            by_http.push(rate(calls, over_http(&serve, in_flight, calls).await?));
            theirs.push(rate(calls, piped(node, "echo", in_flight, calls).await?));
        }
        say!("{calls} calls by each way, {in_flight} at a time, {rounds} times");
        let figure = |way: &str, rates: &[f64]| {
            let metric = format!("check_inbox_{way}_{in_flight}");
            Figure::new(BENCH, metric, median(rates), "1/s", rounds * calls)
                .with_baseline(NODE, median(&theirs))
        };
        figure("stdio", &by_pipe).print_against(ENOUGH)?;
        figure("attached", &by_socket).print()?;
        let by_http = figure("http", &by_http);
        if in_flight == 1 { by_http.print()? } else { by_http.print_against(ENOUGH)? }
    }
    serve.close().await?;
    for profile in PROFILES {
        let bytes = listed(&place.fresh()?, profile).await?;
        Figure::new(BENCH, format!("tools_list_{profile}"), bytes, "bytes", 1).print()?;
    }
    Ok(())
}

async fn piped(server: &Server, tool: &str, in_flight: usize, calls: usize) -> anyhow::Result<Duration> {
    let arguments = match server {
        Server::Ours { .. } => json!({}),
        _ => json!({ "text": "." }),
    };
    let mut client = Client::open(server).await?;
    client.calls(tool, &arguments, in_flight, WARM_UP).await?;
    let time = client.calls(tool, &arguments, in_flight, calls).await?;
    client.close().await?;
    Ok(time)
}

/// Measures concurrent calls over HTTP, with one connection and one session for each call in flight.
async fn over_http(serve: &Serve, in_flight: usize, calls: usize) -> anyhow::Result<Duration> {
    let mut connections = Vec::with_capacity(in_flight);
    for _ in 0..in_flight {
        let mut connection = serve.connect(READER).await?;
        connection.start_session().await?;
        connections.push(connection);
    }
    let connections = in_turns(connections, WARM_UP).await?;
    let began = Instant::now();
    in_turns(connections, calls).await?;
    Ok(began.elapsed())
}

async fn in_turns(connections: Vec<Connection>, calls: usize) -> anyhow::Result<Vec<Connection>> {
    let (mut clients, count) = (JoinSet::new(), connections.len());
    for (number, mut connection) in connections.into_iter().enumerate() {
        let share = calls / count + usize::from(number < calls % count);
        clients.spawn(async move {
            for _ in 0..share {
                connection.call("check_inbox", &json!({})).await?;
            }
            anyhow::Ok(connection)
        });
    }
    let mut connections = Vec::with_capacity(count);
    while let Some(connection) = clients.join_next().await {
        connections.push(connection??);
    }
    Ok(connections)
}

/// Measures the size of the tool list of a profile.
#[expect(clippy::cast_precision_loss, reason = "a list of a few kilobytes")]
async fn listed(folder: &Path, profile: &str) -> anyhow::Result<f64> {
    workspace(folder).await?;
    let config = json!({ "tools": { "profile": profile } }).to_string();
    let root = Dir::open_root(folder).context("the workspace")?;
    root.create_new("switchboard.config.json", config.as_bytes(), Durability::Unsynced)?;
    let mut client = Client::start(&Server::ours(READER, folder))?;
    let bytes = client.start_session().await?;
    client.close().await?;
    Ok(bytes as f64)
}
