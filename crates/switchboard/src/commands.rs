//! One file per verb: its arguments and what it does.

pub(crate) mod ack;
pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod channel;
pub(crate) mod claim;
pub(crate) mod completions;
pub(crate) mod doctor;
pub(crate) mod guard;
pub(crate) mod hook;
pub(crate) mod inbox;
pub(crate) mod init;
pub(crate) mod install;
pub(crate) mod mcp;
pub(crate) mod receipt;
pub(crate) mod release;
pub(crate) mod renew;
pub(crate) mod reserve;
pub(crate) mod resume;
pub(crate) mod route;
pub(crate) mod router;
pub(crate) mod run;
pub(crate) mod search;
pub(crate) mod send;
pub(crate) mod sentinel;
pub(crate) mod serve;
pub(crate) mod suite;
pub(crate) mod swarm;
pub(crate) mod tail;
pub(crate) mod team;
pub(crate) mod thread;
pub(crate) mod wait;
pub(crate) mod watch;
pub(crate) mod who;
pub(crate) mod worker;
pub(crate) mod workflow;

use crate::cli::Command;
use crate::context::Context;
use crate::failure::Failure;

/// Does what the verb says.
pub(crate) async fn run(command: Command, context: Context) -> Result<(), Failure> {
    match command {
        Command::Init(args) => init::run(args, context).await,
        Command::Send(args) => send::run(args, context).await,
        Command::Inbox(args) => inbox::run(args, context).await,
        Command::Ack(args) => ack::run(args, context).await,
        Command::Wait(args) => wait::run(args, context).await,
        Command::Receipt(args) => receipt::run(args, context).await,
        Command::Agents(args) => agents::run(args, context).await,
        Command::Team(args) => team::run(args, context).await,
        Command::Workflow(args) => workflow::run(args, context).await,
        Command::Tail(args) => tail::run(args, context).await,
        Command::Thread(args) => thread::run(args, context).await,
        Command::Channel(args) => channel::run(args, context).await,
        Command::Watch(args) => watch::run(args, context).await,
        Command::Who(args) => who::run(args, context).await,
        Command::Route(args) => route::run(args, context).await,
        Command::Search(args) => search::run(args, context).await,
        Command::Resume(args) => resume::run(args, context).await,
        Command::Run(args) => run::run(args, context).await,
        Command::Suite(args) => suite::run(args, context).await,
        Command::Worker(args) => worker::run(args, context).await,
        Command::Router(args) => router::run(args, context).await,
        Command::Swarm(args) => swarm::run(args, context).await,
        Command::Mcp(args) => mcp::run(args, context).await,
        Command::Install(args) => install::install(&args, &context),
        Command::Uninstall(args) => install::uninstall(&args, &context),
        Command::Hook(args) => hook::run(args, context).await,
        Command::Serve(args) => serve::run(args, context).await,
        Command::Audit(args) => audit::run(args, context).await,
        Command::Doctor(args) => doctor::run(args, context).await,
        Command::Claim(args) => claim::run(args, context).await,
        Command::Renew(args) => renew::run(args, context).await,
        Command::Release(args) => release::run(args, context).await,
        Command::Reserve(args) => reserve::run(args, context).await,
        Command::Guard(args) => guard::run(args, context).await,
        Command::Sentinel(args) => sentinel::run(args),
        Command::Completions(args) => completions::run(&args, &context),
    }
}
