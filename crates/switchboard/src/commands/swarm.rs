//! The verb `switchboard swarm`.

mod endpoint;
mod identity;
mod membership;
mod talk;

use clap::{Args, Subcommand};

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;

/// Exchange signed messages with agents of other owners.
///
/// A swarm has a master, who manages its members. `switchboard serve` sends and receives its messages over HTTPS.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard swarm init --agent codex --endpoint https://example.org/swarm",
    "switchboard swarm create research",
    "switchboard swarm invite research --expires 2d",
])]
pub(crate) struct Swarm {
    #[command(subcommand)]
    command: Verb,
}

/// Selects a swarm by option.
#[derive(Debug, Args)]
struct InSwarm {
    /// Use this swarm [default: the only one]
    #[arg(long, value_name = "NAME")]
    swarm: Option<String>,
}

/// Selects one of the owner's agents.
#[derive(Debug, Args)]
struct OwnAgent {
    /// Use this agent of yours [default: the only one]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Init(identity::Init),
    Create(membership::Create),
    Invite(membership::Invite),
    Invites(membership::Invites),
    Revoke(membership::Revoke),
    Join(membership::Join),
    /// Leave a swarm
    #[command(after_long_help = examples!["switchboard swarm leave research"])]
    Leave(membership::OneSwarm),
    Kick(membership::Kick),
    Transfer(membership::Transfer),
    /// Approve an agent that asked to join
    #[command(after_long_help = examples!["switchboard swarm approve dave --swarm research"])]
    Approve(membership::Decide),
    /// Deny an agent that asked to join
    #[command(after_long_help = examples!["switchboard swarm deny dave --swarm research"])]
    Deny(membership::Decide),
    Dissolve(membership::Dissolve),
    List(membership::List),
    /// List the members of a swarm
    #[command(after_long_help = examples!["switchboard swarm members research"])]
    Members(membership::OneSwarm),
    Endpoint(endpoint::SetEndpoint),
    /// Request the whole roster from the master
    #[command(after_long_help = examples!["switchboard swarm sync research"])]
    Sync(membership::OneSwarm),
    /// Drop messages of an agent or a swarm, without notifying anyone
    #[command(after_long_help = examples![
        "switchboard swarm mute mallory@research",
        "switchboard swarm mute --swarm research",
    ])]
    Mute(membership::Mute),
    /// Receive messages of a muted agent or swarm again
    #[command(after_long_help = examples!["switchboard swarm unmute mallory@research"])]
    Unmute(membership::Mute),
    Send(talk::Send),
    Notify(talk::Notify),
    Messages(talk::Messages),
    Context(talk::ForSubagent),
    Export(identity::Export),
    Import(identity::Import),
    Key(identity::Key),
}

pub(crate) async fn run(args: Swarm, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let swarms = context.swarms(&workspace).await?;
    let done = match args.command {
        Verb::Init(args) => identity::init(args, &context, &swarms).await,
        Verb::Create(args) => membership::create(args, &context, &swarms).await,
        Verb::Invite(args) => membership::invite(args, &context, &swarms).await,
        Verb::Invites(args) => membership::invites(&args, &context, &swarms),
        Verb::Revoke(args) => membership::revoke(args, &context, &swarms).await,
        Verb::Join(args) => membership::join(args, &context, &swarms).await,
        Verb::Leave(args) => membership::leave(args, &context, &swarms).await,
        Verb::Kick(args) => membership::kick(args, &context, &swarms).await,
        Verb::Transfer(args) => membership::transfer(args, &context, &swarms).await,
        Verb::Approve(args) => membership::decide(args, true, &context, &swarms).await,
        Verb::Deny(args) => membership::decide(args, false, &context, &swarms).await,
        Verb::Dissolve(args) => membership::dissolve(args, &context, &swarms).await,
        Verb::List(args) => membership::list(&args, &context, &swarms),
        Verb::Members(args) => membership::members(&args, &context, &swarms),
        Verb::Endpoint(args) => endpoint::set_endpoint(args, &context, &swarms).await,
        Verb::Sync(args) => membership::sync(args, &context, &swarms).await,
        Verb::Mute(args) => membership::mute(args, true, &context, &swarms).await,
        Verb::Unmute(args) => membership::mute(args, false, &context, &swarms).await,
        Verb::Send(args) => talk::send(args, &context, &swarms).await,
        Verb::Notify(args) => talk::notify(args, &context, &swarms).await,
        Verb::Messages(args) => talk::messages(args, &context, &swarms).await,
        Verb::Context(args) => talk::for_subagent(args, &context, &swarms).await,
        Verb::Export(args) => identity::export(&args, &context, &swarms),
        Verb::Import(args) => identity::import(args, &context, &swarms).await,
        Verb::Key(args) => identity::key(args, &context, &swarms).await,
    };
    workspace.close().await;
    done
}
