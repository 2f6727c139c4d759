//! One file per verb: its arguments and what it does.

pub(crate) mod ack;
pub(crate) mod adopt;
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

use crate::cli::{Command, Later};
use crate::context::Context;
use crate::failure::Failure;

/// Does what the verb says.
pub(crate) async fn run(command: Command, context: Context) -> Result<(), Failure> {
    match command {
        Command::Init(args) => init::run(args, context).await,
        Command::Send(Later(args)) => send::run(args, context).await,
        Command::Inbox(Later(args)) => inbox::run(args, context).await,
        Command::Ack(Later(args)) => ack::run(args, context).await,
        Command::Wait(Later(args)) => wait::run(args, context).await,
        Command::Receipt(Later(args)) => receipt::run(args, context).await,
        Command::Agents(Later(args)) => agents::run(args, context).await,
        Command::Team(Later(args)) => team::run(args, context).await,
        Command::Workflow(Later(args)) => workflow::run(args, context).await,
        Command::Tail(Later(args)) => tail::run(args, context).await,
        Command::Thread(Later(args)) => thread::run(args, context).await,
        Command::Channel(Later(args)) => channel::run(args, context).await,
        Command::Watch(Later(args)) => watch::run(args, context).await,
        Command::Who(Later(args)) => who::run(args, context).await,
        Command::Route(Later(args)) => route::run(args, context).await,
        Command::Search(Later(args)) => search::run(args, context).await,
        Command::Adopt(Later(args)) => adopt::run(args, context).await,
        Command::Resume(Later(args)) => resume::run(args, context).await,
        Command::Run(Later(args)) => run::run(args, context).await,
        Command::Suite(Later(args)) => suite::run(args, context).await,
        Command::Worker(Later(args)) => worker::run(args, context).await,
        Command::Router(Later(args)) => router::run(args, context).await,
        Command::Swarm(Later(args)) => swarm::run(args, context).await,
        Command::Mcp(Later(args)) => mcp::run(args, context).await,
        Command::Install(Later(args)) => install::install(&args, &context),
        Command::Uninstall(Later(args)) => install::uninstall(&args, &context),
        Command::Hook(Later(args)) => hook::run(args, context).await,
        Command::Serve(Later(args)) => Box::pin(serve::run(args, context)).await,
        Command::Audit(Later(args)) => audit::run(args, context).await,
        Command::Doctor(Later(args)) => doctor::run(args, context).await,
        Command::Claim(Later(args)) => claim::run(args, context).await,
        Command::Renew(Later(args)) => renew::run(args, context).await,
        Command::Release(Later(args)) => release::run(args, context).await,
        Command::Reserve(Later(args)) => reserve::run(args, context).await,
        Command::Guard(Later(args)) => guard::run(args, context).await,
        Command::Sentinel(Later(args)) => sentinel::run(args).await,
        Command::Completions(Later(args)) => completions::run(&args, &context),
    }
}
