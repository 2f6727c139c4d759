//! `switchboard route`

use std::fmt::Write;

use clap::Args;
use serde_json::{Map, Value, json};
use switchboard_core::{
    Address, AgentId, Because, Considered, Door, Fit, Kind, Message, MessageId, NativeId, Origin, consider,
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
    /// codex · team:backend · #general · alice@research · job:7/0 · all · or a role
    to: String,

    /// Accept a recipient that is not registered and reads its mailbox as files
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
    let considered = consider(&message, &directory, args.allow_unregistered)?;
    let is_served = hub.service_holder("serve")?.is_some();
    let reached = considered.iter().filter(|one| one.choice().is_some()).count();
    if !context.printer.is_json() {
        let to = &message.to;
        context.printer.line(format_args!("{to} from {}: {}", message.from, count(reached, "recipient")));
    }
    for one in &considered {
        if context.printer.is_json() {
            let mut object = object(one, &message.to, is_served);
            show::note_disk(&mut object, hub);
            context.printer.object(&object);
        } else {
            context.printer.line(text(one, &message.to, is_served));
        }
    }
    workspace.close().await;
    Ok(())
}

/// Builds the message as `send` would now.
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

fn text(one: &Considered, to: &Address, is_served: bool) -> String {
    let bold = anstyle::Style::new().bold();
    let mut text = format!("{bold}{}{bold:#}  {}", one.recipient.agent, explain_recipient(one, to));
    let choice = one.choice();
    for (route, fit) in &one.routes {
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

fn object(one: &Considered, to: &Address, is_served: bool) -> Value {
    let choice = one.choice();
    let routes = one.routes.iter().map(|(route, fit)| {
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
        "agent": one.recipient.agent.to_string(),
        "why": explain_recipient(one, to),
        "forwarded_from": one.recipient.forwarded_from.as_ref().map(ToString::to_string),
        "route": choice.map(|(route, _)| route.to_string()),
        "waits_for_serve": choice.is_some_and(|(route, _)| needs_serve(route.door()) && !is_served),
        "routes": routes.collect::<Vec<_>>(),
    })
}

/// Explains why the address leads to the recipient.
fn explain_recipient(one: &Considered, to: &Address) -> String {
    let because = match &one.recipient.because {
        Because::Named => "has that name".to_owned(),
        Because::Alias(alias) => format!("'{alias}' is another name of it"),
        Because::Elsewhere => "has that name on another hub, and nobody here has it".to_owned(),
        Because::Node => "runs as that node".to_owned(),
        Because::Member => format!("belongs to {to}"),
        Because::Included => format!("belongs to {to} by a link"),
        Because::Joined => format!("reads {to} along by a link"),
        Because::Unregistered => {
            "is not registered; its mailbox is a folder that anybody may read".to_owned()
        }
    };
    match &one.recipient.forwarded_from {
        Some(from) if *to == Address::from(from.clone()) => "gets the mail of that one by a link".to_owned(),
        Some(from) => format!("gets the mail of {from} by a link, who {because}"),
        None => because,
    }
}

/// Explains why a route is used or not.
fn explain_route(fit: Fit, is_chosen: bool) -> &'static str {
    match fit {
        Fit::InPlace => "the message lies there",
        Fit::WrittenTo if is_chosen => "taken: the message is written to that channel",
        Fit::Open(_) if is_chosen => "taken: the most direct way",
        Fit::WrittenTo | Fit::Open(_) => "not taken: another way comes first",
        Fit::CameBy => "not taken: the message came by it",
        Fit::FurtherHub => "not taken: what came from a hub goes to no further one",
    }
}

/// True if only `serve` delivers through this door.
fn needs_serve(door: Door) -> bool {
    match door {
        Door::Workspace | Door::Channels => false,
        Door::Workers | Door::Swarm | Door::Nats => true,
    }
}
