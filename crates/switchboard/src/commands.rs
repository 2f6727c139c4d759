//! The verbs: one file each, with its arguments and its `run`.

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
pub(crate) mod reap;
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

use crate::cli::{Command, Deferred, Immediate};
use crate::context::Context;
use crate::failure::Failure;

/// Runs the verb.
pub(crate) async fn run(command: Command, context: Context) -> Result<(), Failure> {
    match command {
        Command::Init(Immediate(args)) => init::run(args, context).await,
        Command::Send(Deferred(args)) => send::run(args, context).await,
        Command::Inbox(Deferred(args)) => inbox::run(args, context).await,
        Command::Ack(Deferred(args)) => ack::run(args, context).await,
        Command::Wait(Deferred(args)) => wait::run(args, context).await,
        Command::Receipt(Deferred(args)) => receipt::run(args, context).await,
        Command::Agents(Deferred(args)) => agents::run(args, context).await,
        Command::Team(Deferred(args)) => team::run(args, context).await,
        Command::Workflow(Deferred(args)) => workflow::run(args, context).await,
        Command::Tail(Deferred(args)) => tail::run(args, context).await,
        Command::Thread(Deferred(args)) => thread::run(args, context).await,
        Command::Channel(Deferred(args)) => channel::run(args, context).await,
        Command::Watch(Deferred(args)) => watch::run(args, context).await,
        Command::Who(Deferred(args)) => who::run(args, context).await,
        Command::Route(Deferred(args)) => route::run(args, context).await,
        Command::Search(Deferred(args)) => search::run(args, context).await,
        Command::Adopt(Deferred(args)) => adopt::run(args, context).await,
        Command::Resume(Deferred(args)) => resume::run(args, context).await,
        Command::Run(Deferred(args)) => run::run(args, context).await,
        Command::Suite(Deferred(args)) => suite::run(args, context).await,
        Command::Worker(Deferred(args)) => worker::run(args, context).await,
        Command::Router(Deferred(args)) => router::run(args, context).await,
        Command::Swarm(Deferred(args)) => swarm::run(args, context).await,
        Command::Mcp(Deferred(args)) => mcp::run(args, context).await,
        Command::Install(Deferred(args)) => install::install(&args, &context),
        Command::Uninstall(Deferred(args)) => install::uninstall(&args, &context),
        Command::Hook(Deferred(args)) => hook::run(args, context).await,
        Command::Serve(Deferred(args)) => Box::pin(serve::run(args, context)).await,
        Command::Audit(Deferred(args)) => audit::run(args, context).await,
        Command::Doctor(Deferred(args)) => doctor::run(args, context).await,
        Command::Claim(Deferred(args)) => claim::run(args, context).await,
        Command::Renew(Deferred(args)) => renew::run(args, context).await,
        Command::Release(Deferred(args)) => release::run(args, context).await,
        Command::Reserve(Deferred(args)) => reserve::run(args, context).await,
        Command::Guard(Deferred(args)) => guard::run(args, context).await,
        Command::Reap(Deferred(args)) => reap::run(args).await,
        Command::Completions(Deferred(args)) => completions::run(&args, &context),
    }
}
