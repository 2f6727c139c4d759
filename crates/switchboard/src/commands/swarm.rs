//! `switchboard swarm`

mod endpoint;
mod identity;
mod membership;
mod talk;

use clap::{Args, Subcommand};

use crate::context::Context;
use crate::failure::Failure;

/// Talk with agents of other owners over the internet, each message signed.
#[derive(Debug, Args)]
pub(crate) struct Swarm {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Make an agent one that takes part in swarms: a key and an address
    Init(identity::Init),
    /// Make a swarm that your agent leads
    Create(membership::Create),
    /// Make an invite to give to somebody
    Invite(membership::Invite),
    /// List the invites of a swarm
    Invites(membership::Invites),
    /// Take an invite back
    Revoke(membership::Revoke),
    /// Join the swarm of an invite
    Join(membership::Join),
    /// Leave a swarm
    Leave(membership::OneSwarm),
    /// Remove a member until it is invited again
    Kick(membership::Kick),
    /// Hand the master's role to a member
    Transfer(membership::Transfer),
    /// Let in somebody who waits for approval
    Approve(membership::Decide),
    /// Turn away somebody who waits for approval
    Deny(membership::Decide),
    /// End a swarm for everybody
    Dissolve(membership::Dissolve),
    /// List the swarms
    List(membership::List),
    /// List the members of a swarm
    Members(membership::OneSwarm),
    /// Set the endpoint of a member, for example to restore the one before a change
    Endpoint(endpoint::SetEndpoint),
    /// Ask the master for the whole roster
    Sync(membership::OneSwarm),
    /// Drop what an agent or a swarm sends
    Mute(membership::Mute),
    /// Hear an agent or a swarm again
    Unmute(membership::Mute),
    /// Write to a member, or to all of them
    Send(talk::Send),
    /// Tell a swarm of something on GitHub
    Notify(talk::Notify),
    /// Show the newest messages of a swarm
    Messages(talk::Messages),
    /// Everything that a subagent needs to know
    Context(talk::ForSubagent),
    /// Print your agent's state, to take it elsewhere; without its private key
    Export(identity::Export),
    /// Take over a state that was exported
    Import(identity::Import),
    /// Show or change keys
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
