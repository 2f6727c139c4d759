//! Time from the start of a server process until the client has the tool list.

use std::time::{Duration, Instant};

use super::pipe::{Client, Server};
use super::{BENCH, NODE};
use crate::figure::{Figure, Target};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis};

/// Number of warm-up turns, which do not count.
const WARM_UP: usize = 2;

pub(super) async fn run(ours: &Server, node: &Server, turns: usize) -> anyhow::Result<()> {
    RunFolder::settle();
    let (mut mine, mut theirs) = (Vec::new(), Vec::new());
    for turn in 0..WARM_UP + turns {
        if turn == WARM_UP {
            mine.clear();
            theirs.clear();
        }
        mine.push(once(ours).await?);
        theirs.push(once(node).await?);
    }
    say!("started each server {turns} times");
    let (mine, theirs) = (median(&millis(&mine)), median(&millis(&theirs)));
    Figure::new(BENCH, "start_p50", mine, "ms", turns)
        .with_baseline(NODE, theirs)
        .print_against(Target::AtMost(0.1))
}

async fn once(server: &Server) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut client = Client::start(server)?;
    client.start_session().await?;
    let time = began.elapsed();
    client.close().await?;
    Ok(time)
}
