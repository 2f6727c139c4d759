//! `bench suites`: cost of Switchboard between a client and the servers behind it.
//!
//! The same call is made directly and through the suite, in turn: to an echo server, and to a real Node server. After
//! that, the cost of twenty servers without calls and of a hundred clients of one server is measured.

mod echo;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures_util::future::try_join_all;
use serde_json::{Value, json};
use switchboard_sys::process::Spawn;
use test_support::tools::installed;

use crate::figure::{Figure, Target};
use crate::mcp::http::{Connection, Serve};
use crate::mcp::memory::resident;
use crate::mcp::pipe::{Client, Server};
use crate::program::{build_shipped, run_timed, shipped};
use crate::progress::say;
use crate::run_folder::RunFolder;
use crate::stats::{median, millis};

pub(crate) use self::echo::run as echo_child;

const BENCH: &str = "suites";

/// Path at which `tools/install.sh` installs the real server, relative to the script's install folder.
const EVERYTHING: &str = "npm/@modelcontextprotocol/server-everything/node_modules/@modelcontextprotocol/server-everything/dist/index.js";

/// Number of servers without calls.
const IDLE: usize = 20;

/// Number of clients that share one server.
const HOSTS: usize = 100;

/// Number of calls of one kind before the other kind has its turn.
const TURN: usize = 20;

/// Number and length of the measurements.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Number of turns for each kind of call.
    turns: usize,
    starts: usize,
    /// Number of calls by each of the hundred clients.
    calls: usize,
}

const FULL: Extent = Extent { turns: 100, starts: 50, calls: 100 };

const QUICK: Extent = Extent { turns: 25, starts: 15, calls: 100 };

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let extent = if quick { QUICK } else { FULL };
    build_shipped().await?;
    let native = [std::env::current_exe()?.into_os_string(), "echo-child".into()];
    added(place, "native", &native, 0.1, extent.turns).await?;
    let everything = installed(EVERYTHING).map_err(anyhow::Error::msg)?;
    added(place, "node", &["node".into(), everything.into_os_string()], 0.2, extent.turns).await?;
    idle(place, &native, extent.starts).await?;
    shared(place, &native, extent.calls).await
}

/// User who trusts the servers and has a workspace.
struct User {
    home: PathBuf,
    workspace: PathBuf,
}

impl User {
    async fn new(place: &RunFolder) -> anyhow::Result<Self> {
        let user = Self { home: place.fresh()?, workspace: place.fresh()? };
        user.run(&["init".into()]).await?;
        Ok(user)
    }

    async fn run(&self, args: &[OsString]) -> anyhow::Result<()> {
        let status =
            self.settle(Spawn::new(shipped()?).args(args)).stdout(Stdio::null()).spawn()?.wait().await?;
        ensure!(status.success(), "switchboard {args:?} ended with {status}");
        Ok(())
    }

    async fn adds(&self, name: &str, command: &[OsString]) -> anyhow::Result<()> {
        let mut args: Vec<OsString> = ["suite", "add", name, "--"].map(OsString::from).to_vec();
        args.extend_from_slice(command);
        self.run(&args).await
    }

    fn settle(&self, spawn: Spawn) -> Spawn {
        spawn.cwd(&self.workspace).env("HOME", &self.home).stderr(Stdio::inherit())
    }

    fn server(&self) -> Server {
        Server::Settled { home: self.home.clone(), workspace: self.workspace.clone() }
    }
}

/// Measures the overhead that the suite adds per call.
async fn added(
    place: &RunFolder,
    kind: &'static str,
    command: &[OsString],
    bound: f64,
    turns: usize,
) -> anyhow::Result<()> {
    let user = User::new(place).await?;
    user.adds("echo", command).await?;
    let program = Server::Program { command: command.to_vec(), folder: user.workspace.clone() };
    let (mut direct, mut through) = (Client::open(&program).await?, Client::open(&user.server()).await?);
    let arguments = json!({ "message": "x".repeat(64) });
    let call = json!({ "action": "call", "subtool": "echo", "args": arguments });
    let (mut least, mut ours) = (Vec::new(), Vec::new());
    for turn in 0..=turns {
        // The first turn does not count, because it starts the server behind the suite.
        if turn == 1 {
            least.clear();
            ours.clear();
        }
        for _ in 0..TURN {
            least.push(direct.call("echo", &arguments).await?);
        }
        for _ in 0..TURN {
            ours.push(through.call("echo_suite", &call).await?);
        }
    }
    direct.close().await?;
    through.close().await?;
    let (least, ours) = (median(&millis(&least)), median(&millis(&ours)));
    say!("{kind}: {ours:.3} ms through the suite, {least:.3} ms directly");
    let figure =
        |metric: &str, value| Figure::new(BENCH, format!("{metric}_{kind}_p50"), value, "ms", turns * TURN);
    figure("call", ours).with_baseline("direct_call", least).print()?;
    figure("added", ours - least).with_baseline("bound", bound).print_against(Target::AtMost(1.0))
}

/// Measures the cost of servers that receive no calls.
async fn idle(place: &RunFolder, command: &[OsString], starts: usize) -> anyhow::Result<()> {
    let user = User::new(place).await?;
    for number in 0..IDLE {
        user.adds(&format!("echo{number}"), command).await?;
    }
    let (mut ours, mut nothing, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..starts {
        let began = Instant::now();
        let mut client = Client::start(&user.server())?;
        client.start_session().await?;
        ours.push(began.elapsed());
        held.push(resident(&client.pid().to_string()).await?);
        client.close().await?;
        nothing.push(run_timed(Path::new("/bin/true"), &[], &user.workspace).await?);
    }
    let (ours, nothing) = (median(&millis(&ours)), median(&millis(&nothing)));
    Figure::new(BENCH, "start_20_p50", ours, "ms", starts)
        .with_baseline("bin_true", nothing)
        .print_against(Target::AtMost(10.0))?;
    Figure::new(BENCH, "resident_20", median(&held), "MiB", starts)
        .with_baseline("bound_12_mb", 12e6 / f64::from(1 << 20))
        .print_against(Target::AtMost(1.0))
}

/// Runs a hundred concurrent clients of one server and verifies that each gets its own results.
async fn shared(place: &RunFolder, command: &[OsString], calls: usize) -> anyhow::Result<()> {
    let user = User::new(place).await?;
    user.adds("echo", command).await?;
    let serve = Serve::start_with(&user.workspace, |spawn| spawn.env("HOME", &user.home)).await?;
    let mut clients = Vec::new();
    for number in 0..HOSTS {
        let mut client = serve.connect(&format!("host{number}")).await?;
        client.start_session().await?;
        clients.push(client);
    }
    let began = Instant::now();
    let work = clients.iter_mut().enumerate().map(|(number, client)| host(number, client, calls));
    try_join_all(work).await?;
    let time: Duration = began.elapsed();
    drop(clients);
    serve.close().await?;
    #[expect(clippy::cast_precision_loss, reason = "a count of calls is far below 2^52")]
    let all = (HOSTS * calls) as f64;
    Figure::new(BENCH, "shared_calls_100_hosts", all / time.as_secs_f64(), "1/s", HOSTS * calls).print()
}

async fn host(number: usize, client: &mut Connection, calls: usize) -> anyhow::Result<()> {
    for call in 0..calls {
        let message = format!("host {number} call {call}");
        let arguments = json!({ "action": "call", "subtool": "echo", "args": { "message": message } });
        let answer = client.call("echo_suite", &arguments).await?;
        let answer: Value = serde_json::from_str(&answer)?;
        let text = answer["result"]["content"][0]["text"].as_str().context("no text")?;
        ensure!(text == message, "host {number} was answered {text:?}");
    }
    Ok(())
}
