//! `bench sessions`: memory of one of twenty `switchboard mcp` sessions in one workspace; Linux only.
//!
//! Sessions of the same program share its code, so each further session costs only its private pages. The baseline is
//! the only session of another workspace, after the same calls.

use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::figure::{Figure, Target};
use crate::load::sender;
use crate::mcp::pipe::{Client, Server};
use crate::mcp::{message_arguments, workspace};
use crate::program::build_shipped;
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::median;

const BENCH: &str = "sessions";

/// Number of sessions that run at the same time. The last one is measured.
const SESSIONS: usize = 20;

/// Number of calls in each session.
const CALLS: usize = 20;

/// Target for a session's resident memory in MiB, most of which is code that it shares with the other sessions.
const MOST_RESIDENT: f64 = 32.0;

/// Target for a session's private memory in MiB: twenty sessions then cost about as much as one Node process.
const MOST_PRIVATE: f64 = 4.0;

/// Memory of a process, in MiB.
#[derive(Debug, Clone, Copy)]
struct Memory {
    resident: f64,
    /// Private memory, in pages that no other process has: `Private_Clean` + `Private_Dirty`.
    private: f64,
}

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    if !cfg!(target_os = "linux") {
        say!("only Linux tells private pages from shared ones");
        return Ok(());
    }
    build_shipped().await?;
    let rounds = if quick { 3 } else { 7 };
    let (mut single, mut last) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        single.push(measure_last(place, 1).await?);
        last.push(measure_last(place, SESSIONS).await?);
    }
    say!("{SESSIONS} sessions with {CALLS} calls each, {rounds} times");
    let figure = |metric: &str, of: fn(&Memory) -> f64, most: f64| {
        let [alone, among] = [&single, &last].map(|all| median(&all.iter().map(of).collect::<Vec<_>>()));
        let bound = Figure::new(BENCH, format!("{metric}_of_{SESSIONS}th"), among, "MiB", rounds);
        bound.clone().with_baseline("bound", most).print_against(Target::AtMost(1.0))?;
        bound.with_baseline("single_session", alone).print()
    };
    figure("resident", |memory| memory.resident, MOST_RESIDENT)?;
    figure("private", |memory| memory.private, MOST_PRIVATE)
}

/// Opens `count` sessions in a new workspace, uses each, and measures the last one.
async fn measure_last(place: &RunFolder, count: usize) -> anyhow::Result<Memory> {
    let folder = place.fresh()?;
    workspace(&folder).await?;
    let mut sessions = Vec::with_capacity(count);
    for number in 0..count {
        sessions.push(open_and_use(&sender(number), &folder).await?);
    }
    let memory = Memory::of(sessions.last().context("no session")?.pid())?;
    for session in sessions {
        session.close().await?;
    }
    Ok(memory)
}

async fn open_and_use(agent: &str, folder: &Path) -> anyhow::Result<Client> {
    let mut client = Client::open(&Server::ours(agent, folder)).await?;
    for _ in 0..CALLS / 2 {
        client.call("send_message", &message_arguments()).await?;
        client.call("check_inbox", &json!({})).await?;
    }
    Ok(client)
}

impl Memory {
    fn of(pid: u32) -> anyhow::Result<Self> {
        let path = format!("/proc/{pid}/smaps_rollup");
        let rollup = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        Self::parse(&rollup).with_context(|| format!("{path} lacks a field"))
    }

    fn parse(rollup: &str) -> Option<Self> {
        let mebibytes = |field: &str| {
            let line = rollup.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
            let kibibytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(kibibytes / 1024.0)
        };
        let private = mebibytes("Private_Clean")? + mebibytes("Private_Dirty")?;
        Some(Self { resident: mebibytes("Rss")?, private })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_is_clean_and_dirty() {
        let rollup =
            "Rss:  2048 kB\nPrivate_Clean:  512 kB\nPrivate_Dirty:  1024 kB\nPrivate_Hugetlb:  0 kB\n";
        let memory = Memory::parse(rollup).unwrap();
        assert_eq!([memory.resident, memory.private].map(f64::to_bits), [2.0, 1.5].map(f64::to_bits));
        assert!(Memory::parse("Rss:  2048 kB\n").is_none());
    }
}
