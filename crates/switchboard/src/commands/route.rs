//! The verb `switchboard route`.

use std::fmt::Write;

use clap::Args;
use serde_json::{Map, Value, json};
use switchboard_core::{
    Address, AgentId, Door, Kind, Message, MessageId, NativeId, Origin, ResolvedVia, RouteCandidates,
    RouteRank, rank_routes,
};
use switchboard_hub::Hub;

use crate::cli::help::examples;
use crate::commands::inbox::count;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Explain where a message to an address would go, and why.
///
/// It applies the rules of `send` without sending anything, with you as the sender or the agent of --from.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard route team:backend",
    "switchboard --from codex route '#general'",
])]
pub(crate) struct RouteTo {
    /// The recipient: codex · team:backend · #general · alice@research · job:7/0 · all · or a role
    to: String,

    /// Accept a recipient that is not registered, such as a program that reads its mailbox files
    #[arg(long)]
    allow_unregistered: bool,
}

pub(crate) async fn run(args: RouteTo, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let to: Address = if args.allow_unregistered {
        args.to.parse()?
    } else {
        workspace.resolve_recipient(&args.to).await?
    };
    let hub = workspace.hub();
    let directory = hub.directory().await?;
    let message = draft_message(hub, directory.canonical(&context.identity()?), to);
    let considered = rank_routes(&message, &directory, args.allow_unregistered)?;
    let is_served = hub.services().holder("serve")?.is_some();
    let reached = considered.iter().filter(|candidates| candidates.best().is_some()).count();
    if !context.printer.is_json() {
        let to = &message.to;
        context.printer.line(format_args!("{to} from {}: {}", message.from, count(reached, "recipient")));
    }
    for candidates in &considered {
        if context.printer.is_json() {
            let mut object = object(candidates, &message.to, is_served);
            show::note_disk(&mut object, hub);
            context.printer.object(&object);
        } else {
            context.printer.line(text(candidates, &message.to, is_served));
        }
    }
    workspace.close().await;
    Ok(())
}

/// Builds the message that `send` would send, without sending it.
fn draft_message(hub: &Hub, from: AgentId, to: Address) -> Message {
    let id: MessageId = hub.next_id();
    Message {
        id,
        from,
        to,
        kind: Kind::delegate_task(),
        body: String::new(),
        in_reply_to: None,
        thread: id,
        sent_at: hub.now(),
        expires_at: None,
        metadata: Map::new(),
        origin: Origin {
            native: NativeId { door: Door::Workspace, scope: String::new(), id: id.to_string() },
            verified: true,
            route: None,
        },
        via: Vec::new(),
        signed: None,
    }
}

fn text(candidates: &RouteCandidates, to: &Address, is_served: bool) -> String {
    let bold = anstyle::Style::new().bold();
    let mut text =
        format!("{bold}{}{bold:#}  {}", candidates.recipient.agent, explain_recipient(candidates, to));
    let choice = candidates.best();
    for (route, fit) in &candidates.routes {
        let is_chosen = choice.is_some_and(|(chosen, _)| chosen == route);
        let mark = if is_chosen { '→' } else { ' ' };
        let _ = write!(text, "\n  {mark} {route}  {}", explain_route(*fit, is_chosen));
        if is_chosen && needs_serve(route.door()) && !is_served {
            text.push_str("; waits for `switchboard serve`");
        }
    }
    if choice.is_none() {
        text.push_str("\n    is left out: there is no way to it but the one the message came by");
    }
    text
}

fn object(candidates: &RouteCandidates, to: &Address, is_served: bool) -> Value {
    let choice = candidates.best();
    let routes = candidates.routes.iter().map(|(route, fit)| {
        let is_chosen = choice.is_some_and(|(chosen, _)| chosen == route);
        json!({
            "route": route.to_string(),
            "door": route.door().as_str(),
            "taken": is_chosen,
            "why": explain_route(*fit, is_chosen),
        })
    });
    json!({
        "to": to.to_string(),
        "agent": candidates.recipient.agent.to_string(),
        "why": explain_recipient(candidates, to),
        "forwarded_from": candidates.recipient.forwarded_from.as_ref().map(ToString::to_string),
        "route": choice.map(|(route, _)| route.to_string()),
        "waits_for_serve": choice.is_some_and(|(route, _)| needs_serve(route.door()) && !is_served),
        "routes": routes.collect::<Vec<_>>(),
    })
}

/// Explains why an address resolves to a recipient.
fn explain_recipient(candidates: &RouteCandidates, to: &Address) -> String {
    let because = match &candidates.recipient.resolved_via {
        ResolvedVia::Name => "has that name".to_owned(),
        ResolvedVia::Alias(alias) => format!("'{alias}' is another name of it"),
        ResolvedVia::OtherHub => "has that name on another hub, and nobody here has it".to_owned(),
        ResolvedVia::Node => "runs as that node".to_owned(),
        ResolvedVia::Member => format!("belongs to {to}"),
        ResolvedVia::AddedMember => format!("belongs to {to} by a link"),
        ResolvedVia::Subscribed => format!("reads {to} along by a link"),
        ResolvedVia::Unregistered => {
            "is not registered; its mailbox is a folder that anybody may read".to_owned()
        }
    };
    match &candidates.recipient.forwarded_from {
        Some(from) if *to == Address::from(from.clone()) => "gets the mail of that one by a link".to_owned(),
        Some(from) => format!("gets the mail of {from} by a link, who {because}"),
        None => because,
    }
}

/// Explains why a route is used or not.
fn explain_route(fit: RouteRank, is_chosen: bool) -> &'static str {
    match fit {
        RouteRank::InPlace => "the message lies there",
        RouteRank::AddressedChannel if is_chosen => "taken: the message is written to that channel",
        RouteRank::Available(_) if is_chosen => "taken: the most direct way",
        RouteRank::AddressedChannel | RouteRank::Available(_) => "not taken: another way comes first",
        RouteRank::Inbound => "not taken: the message came by it",
        RouteRank::AlreadyRelayed => "not taken: what came from a hub goes to no further one",
    }
}

/// Returns true if only `serve` delivers through this door.
fn needs_serve(door: Door) -> bool {
    match door {
        Door::Workspace | Door::Channels => false,
        Door::Workers | Door::Swarm | Door::Nats => true,
    }
}
