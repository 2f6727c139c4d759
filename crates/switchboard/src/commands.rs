//! The verbs of the command line. Each module has a verb's arguments and its `run`.

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

use futures_util::future::LocalBoxFuture;

use crate::cli::{Command, Deferred, Immediate};
use crate::context::Context;
use crate::failure::Failure;

/// Future of a running verb. It is boxed so that no caller's future contains the states of all verbs.
type RunningVerb = LocalBoxFuture<'static, Result<(), Failure>>;

/// Runs a verb.
pub(crate) fn run(command: Command, context: Context) -> RunningVerb {
    match command {
        Command::Init(Immediate(args)) => Box::pin(init::run(args, context)),
        Command::Send(Deferred(args)) => Box::pin(send::run(args, context)),
        Command::Inbox(Deferred(args)) => Box::pin(inbox::run(args, context)),
        Command::Ack(Deferred(args)) => Box::pin(ack::run(args, context)),
        Command::Wait(Deferred(args)) => Box::pin(wait::run(args, context)),
        Command::Receipt(Deferred(args)) => Box::pin(receipt::run(args, context)),
        Command::Agents(Deferred(args)) => Box::pin(agents::run(args, context)),
        Command::Team(Deferred(args)) => Box::pin(team::run(args, context)),
        Command::Workflow(Deferred(args)) => Box::pin(workflow::run(args, context)),
        Command::Tail(Deferred(args)) => Box::pin(tail::run(args, context)),
        Command::Thread(Deferred(args)) => Box::pin(thread::run(args, context)),
        Command::Channel(Deferred(args)) => Box::pin(channel::run(args, context)),
        Command::Watch(Deferred(args)) => Box::pin(watch::run(args, context)),
        Command::Who(Deferred(args)) => Box::pin(who::run(args, context)),
        Command::Route(Deferred(args)) => Box::pin(route::run(args, context)),
        Command::Search(Deferred(args)) => Box::pin(search::run(args, context)),
        Command::Adopt(Deferred(args)) => Box::pin(adopt::run(args, context)),
        Command::Resume(Deferred(args)) => Box::pin(resume::run(args, context)),
        Command::Run(Deferred(args)) => Box::pin(run::run(args, context)),
        Command::Suite(Deferred(args)) => Box::pin(suite::run(args, context)),
        Command::Worker(Deferred(args)) => Box::pin(worker::run(args, context)),
        Command::Router(Deferred(args)) => Box::pin(router::run(args, context)),
        Command::Swarm(Deferred(args)) => Box::pin(swarm::run(args, context)),
        Command::Mcp(Deferred(args)) => Box::pin(mcp::run(args, context)),
        Command::Install(Deferred(args)) => Box::pin(async move { install::install(&args, &context) }),
        Command::Uninstall(Deferred(args)) => Box::pin(async move { install::uninstall(&args, &context) }),
        Command::Hook(Deferred(args)) => Box::pin(hook::run(args, context)),
        Command::Serve(Deferred(args)) => Box::pin(serve::run(args, context)),
        Command::Audit(Deferred(args)) => Box::pin(audit::run(args, context)),
        Command::Doctor(Deferred(args)) => Box::pin(doctor::run(args, context)),
        Command::Claim(Deferred(args)) => Box::pin(claim::run(args, context)),
        Command::Renew(Deferred(args)) => Box::pin(renew::run(args, context)),
        Command::Release(Deferred(args)) => Box::pin(release::run(args, context)),
        Command::Reserve(Deferred(args)) => Box::pin(reserve::run(args, context)),
        Command::Guard(Deferred(args)) => Box::pin(guard::run(args, context)),
        Command::Reap(Deferred(args)) => Box::pin(reap::run(args)),
        Command::Completions(Deferred(args)) => Box::pin(async move { completions::run(&args, &context) }),
    }
}
