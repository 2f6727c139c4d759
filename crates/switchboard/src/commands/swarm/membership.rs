//! The verbs for membership of swarms: `create`, `invite`, `join`, `leave`, `kick` and others.

use clap::Args;
use door_swarm::{
    INVITE_LIFETIME, InviteLink, JoinOutcome, MembershipStatus, Swarm, SwarmError, SwarmSettings, Swarms,
};
use jiff::SignedDuration;
use serde_json::json;
use switchboard_core::Name;

use super::{InSwarm, OwnAgent};
use crate::cli::help::examples;
use crate::cli::values::{lifetime, number};
use crate::context::Context;
use crate::failure::Failure;
use crate::person::{Consent, require_person};

use crate::show;

/// Create a swarm that your agent leads.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm create 'Research group' --as research --approval"])]
pub(crate) struct Create {
    /// The name shown to people
    name: String,

    #[command(flatten)]
    own: OwnAgent,

    /// Set the name after the @ in addresses [default: made from the swarm's name]
    #[arg(long = "as", value_name = "NAME")]
    realm: Option<String>,

    /// Let members invite others
    #[arg(long)]
    member_invites: bool,

    /// Require your approval for everyone who joins
    #[arg(long)]
    approval: bool,
}

/// Create an invite; everyone who has it can join.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm invite research --expires 2d --max-uses 1"])]
pub(crate) struct Invite {
    /// The swarm [default: the only one]
    swarm: Option<String>,

    /// Let the invite expire after this long [default: 1d]
    #[arg(long, value_name = "DURATION", conflicts_with = "no_expiry", value_parser = lifetime)]
    expires: Option<SignedDuration>,

    /// Keep the invite valid until it is revoked
    #[arg(long)]
    no_expiry: bool,

    /// Limit how many agents may join by it [default: any number]
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    max_uses: Option<u32>,
}

/// List the invites of a swarm.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm invites research"])]
pub(crate) struct Invites {
    /// The swarm [default: the only one]
    swarm: Option<String>,
}

/// Revoke an invite.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm revoke 3fa9c1 --swarm research"])]
pub(crate) struct Revoke {
    /// The start of the digest that `invites` lists
    invite: String,

    #[command(flatten)]
    scope: InSwarm,
}

/// Join a swarm with an invite.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard swarm join -  # paste the invite on stdin",
    "switchboard swarm join - --agent codex --as research",
])]
pub(crate) struct Join {
    /// The invite, swarm://…; `-` reads it from stdin, which keeps it out of the process list
    invite: String,

    #[command(flatten)]
    own: OwnAgent,

    /// Set the name after the @ in addresses [default: made from the swarm's name]
    #[arg(long = "as", value_name = "NAME")]
    realm: Option<String>,
}

/// Selects one swarm by position.
#[derive(Debug, Args)]
pub(crate) struct OneSwarm {
    /// The swarm [default: the only one]
    swarm: Option<String>,
}

/// Remove a member until it is invited again.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm kick mallory --reason spam --swarm research"])]
pub(crate) struct Kick {
    /// The member
    member: String,

    /// Give a reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    scope: InSwarm,

    #[command(flatten)]
    consent: Consent,
}

/// Transfer the master's role to a member.
///
/// The member leads the swarm once it has accepted; until then your agent does.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard swarm transfer bob --swarm research",
    "switchboard swarm transfer --cancel",
])]
pub(crate) struct Transfer {
    /// The member
    #[arg(required_unless_present = "cancel", conflicts_with = "cancel")]
    member: Option<String>,

    /// Cancel a transfer that was not accepted yet
    #[arg(long)]
    cancel: bool,

    #[command(flatten)]
    scope: InSwarm,

    #[command(flatten)]
    consent: Consent,
}

/// Selects an agent that asked to join.
#[derive(Debug, Args)]
pub(crate) struct Decide {
    /// The agent that asked to join
    candidate: String,

    #[command(flatten)]
    scope: InSwarm,

    #[command(flatten)]
    consent: Consent,
}

/// Dissolve a swarm for all members.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm dissolve research --reason 'project finished'"])]
pub(crate) struct Dissolve {
    /// The swarm [default: the only one]
    swarm: Option<String>,

    /// Give a reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    #[command(flatten)]
    consent: Consent,
}

/// List your swarms.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm list --all"])]
pub(crate) struct List {
    /// Include swarms that have ended
    #[arg(long)]
    all: bool,
}

/// Selects an agent or a swarm to mute or unmute.
#[derive(Debug, Args)]
pub(crate) struct Mute {
    /// An agent's id, or its address
    #[arg(required_unless_present = "swarm", conflicts_with = "swarm")]
    member: Option<String>,

    /// Use this swarm [default: the only one]
    #[arg(long, value_name = "NAME")]
    swarm: Option<String>,

    /// Use this agent of yours [default: the only one]
    #[arg(long, value_name = "NAME", conflicts_with = "swarm")]
    agent: Option<String>,
}

pub(super) async fn create(args: Create, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let realm = args.realm.as_deref().map(Name::parse).transpose()?;
    let settings =
        SwarmSettings { allow_member_invite: args.member_invites, require_approval: args.approval };
    let swarm = swarms.create(args.own.agent.as_deref(), &args.name, realm.as_ref(), settings).await?;
    if context.printer.is_json() {
        context.printer.object(&json!({
            "swarm_id": swarm.swarm_id, "name": swarm.name, "address": format!("all@{}", swarm.realm),
            "master": swarm.master, "settings": swarm.settings,
        }));
    } else {
        context.printer.line(format_args!("{}  {}", swarm.realm, swarm.swarm_id));
        context
            .printer
            .note(format_args!("Invite an agent with `switchboard swarm invite {}`.", swarm.realm));
    }
    Ok(())
}

pub(super) async fn invite(args: Invite, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let lifetime = match (args.expires, args.no_expiry) {
        (Some(lifetime), _) => Some(lifetime),
        (None, true) => None,
        (None, false) => Some(INVITE_LIFETIME),
    };
    let made = swarms.invite(args.swarm.as_deref(), lifetime, args.max_uses).await?;
    if context.printer.is_json() {
        context.printer.object(&json!({
            "invite": made.link.reveal(), "digest": made.digest, "expires_at": made.ends_at, "max_uses": args.max_uses,
        }));
    } else {
        context.printer.line(made.link.reveal());
        let end =
            made.ends_at.map_or_else(|| "until it is revoked".to_owned(), |end| format!("until {end:.0}"));
        context.printer.note(format_args!(
            "Everyone who has it can join, {end}. It is listed as {}.",
            &made.digest[..12]
        ));
    }
    Ok(())
}

pub(super) fn invites(args: &Invites, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let (_, swarm) = swarms.find_swarm(args.swarm.as_deref())?;
    for (digest, invite) in &swarm.invites {
        if context.printer.is_json() {
            context.printer.object(&json!({
                "digest": digest, "issuer": invite.issuer, "made_at": invite.made_at, "expires_at": invite.ends_at,
                "max_uses": invite.max_uses, "used_by": invite.used_by, "revoked": invite.revoked,
            }));
            continue;
        }
        let most = invite.max_uses.map_or_else(|| "any".to_owned(), |most| most.to_string());
        let end = invite.ends_at.map_or_else(String::new, |end| format!(", until {end:.0}"));
        let revoked = if invite.revoked { ", revoked" } else { "" };
        let used = invite.used_by.len();
        let issuer = &invite.issuer;
        context
            .printer
            .line(format_args!("{}  by {issuer}, used {used} of {most}{end}{revoked}", &digest[..12]));
    }
    Ok(())
}

pub(super) async fn revoke(args: Revoke, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let digest = swarms.revoke(args.scope.swarm.as_deref(), &args.invite).await?;
    print_action(context, "revoked", &digest);
    let (agent, swarm) = swarms.find_swarm(args.scope.swarm.as_deref())?;
    if swarm.master != agent {
        context.printer.note("The master is notified; until then the invite stays valid.");
    }
    Ok(())
}

pub(super) async fn join(args: Join, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let mut text = args.invite;
    if text == "-" {
        text.clear();
        std::io::stdin().read_line(&mut text).map_err(anyhow::Error::from)?;
    }
    let link = InviteLink::parse(&text).map_err(SwarmError::from)?;
    let realm = args.realm.as_deref().map(Name::parse).transpose()?;
    let working = context.printer.working("asking to join");
    let outcome = swarms.join(args.own.agent.as_deref(), &link, realm.as_ref()).await;
    drop(working);
    let outcome = match outcome {
        // The agent may already be a member, for example because `serve` retried the request meanwhile.
        Err(SwarmError::AlreadyMember { swarm }) => {
            context.printer.note(format_args!("Your agent is in '{swarm}' already."));
            let (_, known) = swarms.find_active_swarm(Some(swarm.as_str()))?;
            JoinOutcome::Joined(Box::new(known.as_ref().clone()))
        }
        outcome => outcome?,
    };
    match outcome {
        JoinOutcome::Joined(swarm) => {
            if context.printer.is_json() {
                context.printer.object(&json!({
                    "status": "joined", "swarm_id": swarm.swarm_id, "name": swarm.name,
                    "address": format!("all@{}", swarm.realm), "master": swarm.master,
                    "members": swarm.members.keys().collect::<Vec<_>>(), "left_out": swarm.left_out,
                }));
            } else {
                let members: Vec<_> = swarm.members.keys().map(ToString::to_string).collect();
                context.printer.line(format_args!("{}  with {}", swarm.realm, members.join(", ")));
            }
            note_rejected_members(context, &swarm);
            Ok(())
        }
        JoinOutcome::Pending { swarm_id } => {
            if context.printer.is_json() {
                context.printer.object(&json!({ "status": "pending", "swarm_id": swarm_id }));
            } else {
                context
                    .printer
                    .line("The master has to approve; `switchboard serve` asks again from time to time.");
            }
            Ok(())
        }
    }
}

pub(super) async fn leave(args: OneSwarm, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let realm = swarms.leave(args.swarm.as_deref()).await?;
    print_action(context, "left", realm.as_str());
    Ok(())
}

pub(super) async fn kick(args: Kick, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    require_person(context, &format!("kick {}", show::plain(&args.member)), args.consent.yes)?;
    let id = swarms.kick(args.scope.swarm.as_deref(), &args.member, args.reason.as_deref()).await?;
    print_action(context, "kicked", id.as_str());
    Ok(())
}

pub(super) async fn transfer(args: Transfer, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let Some(member) = args.member.filter(|_| !args.cancel) else {
        require_person(context, "withdraw the transfer of the master role", args.consent.yes)?;
        let id = swarms.cancel_transfer(args.scope.swarm.as_deref()).await?;
        print_action(context, "cancelled", id.as_str());
        return Ok(());
    };
    let action = format!("hand the master's role to {}", show::plain(&member));
    require_person(context, &action, args.consent.yes)?;
    let id = swarms.transfer(args.scope.swarm.as_deref(), &member).await?;
    print_action(context, "asked", id.as_str());
    context.printer.note(
        "It leads the swarm once it has answered; until then your agent does. Not answered within a day, or by \
         `switchboard swarm transfer --cancel`, the question is taken back.",
    );
    Ok(())
}

pub(super) async fn decide(
    args: Decide,
    approve: bool,
    context: &Context,
    swarms: &Swarms,
) -> Result<(), Failure> {
    let word = if approve { "approve" } else { "deny" };
    require_person(context, &format!("{word} {}", show::plain(&args.candidate)), args.consent.yes)?;
    let id = swarms.decide_join(args.scope.swarm.as_deref(), &args.candidate, approve).await?;
    print_action(context, if approve { "approved" } else { "denied" }, id.as_str());
    Ok(())
}

pub(super) async fn dissolve(args: Dissolve, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let swarm = args.swarm.as_deref().map_or_else(|| "the swarm".to_owned(), show::plain);
    require_person(context, &format!("dissolve {swarm}"), args.consent.yes)?;
    let realm = swarms.dissolve(args.swarm.as_deref(), args.reason.as_deref()).await?;
    print_action(context, "dissolved", realm.as_str());
    Ok(())
}

pub(super) fn list(args: &List, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let all = swarms.swarms();
    let shown: Vec<_> = all.iter().filter(|(_, swarm)| args.all || swarm.is_active()).collect();
    let is_waiting = show_waiting(context, swarms);
    if shown.is_empty() && !is_waiting {
        context
            .printer
            .note("No swarms; `switchboard swarm create` makes one, `switchboard swarm join` joins one.");
    }
    for (agent, swarm) in shown {
        let identity = swarms.identity(Some(agent.as_str()))?;
        let waiting: Vec<_> =
            swarm.pending.iter().filter(|(_, p)| !p.denied).map(|(id, _)| id.to_string()).collect();
        let muted = identity.muted_swarms.contains(&swarm.swarm_id);
        if context.printer.is_json() {
            context.printer.object(&json!({
                "swarm_id": swarm.swarm_id, "name": swarm.name, "address": format!("all@{}", swarm.realm),
                "agent_id": agent, "master": swarm.master, "members": swarm.members.len(), "epoch": swarm.epoch,
                "standing": swarm.status, "settings": swarm.settings, "muted": muted, "pending": waiting,
                "handing_over_to": swarm.handover.as_ref().map(|handover| &handover.to),
            }));
            continue;
        }
        let role = match swarm.status {
            MembershipStatus::Active if swarm.master == *agent => "leads",
            MembershipStatus::Active => "is in",
            MembershipStatus::Left => "has left",
            MembershipStatus::Kicked => "was removed from",
            MembershipStatus::Dissolved => "was in, until it was dissolved,",
        };
        let members = swarm.members.len();
        let muted = if muted { ", muted" } else { "" };
        let waiting = match waiting.as_slice() {
            [] => String::new(),
            waiting => format!(", waiting for approval: {}", waiting.join(", ")),
        };
        let handover = swarm.handover.as_ref();
        let handover =
            handover.map_or_else(String::new, |handover| format!(", {} was asked to lead it", handover.to));
        context.printer.line(format_args!(
            "{}  {agent} {role} \"{}\", {members} members{muted}{waiting}{handover}",
            swarm.realm,
            show::inline(&swarm.name)
        ));
    }
    Ok(())
}

/// Prints the swarms with a pending join request of an agent of this hub; returns true if there are any.
fn show_waiting(context: &Context, swarms: &Swarms) -> bool {
    let mut is_any = false;
    for identity in swarms.identities() {
        for (id, joining) in &identity.joining {
            is_any = true;
            let (agent, next) = (&identity.agent, joining.ask_at);
            if context.printer.is_json() {
                context.printer.object(&json!({
                    "swarm_id": id, "agent_id": agent, "standing": "pending", "asked": joining.asked, "ask_at": next,
                }));
            } else {
                context.printer.line(format_args!(
                    "{id}  {agent} has asked to join, and its master has to approve; `serve` asks again at {next:.0}"
                ));
            }
        }
    }
    is_any
}

pub(super) fn members(args: &OneSwarm, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let (agent, swarm) = swarms.find_swarm(args.swarm.as_deref())?;
    let identity = swarms.identity(Some(agent.as_str()))?;
    for (id, member) in &swarm.members {
        let address = format!("{}@{}", member.name, swarm.realm);
        if context.printer.is_json() {
            context.printer.object(&json!({
                "agent_id": id, "address": address, "endpoint": member.endpoint, "public_key": member.public_key,
                "fingerprint": member.public_key.fingerprint(), "joined_at": member.joined_at,
                "is_master": *id == swarm.master, "is_me": *id == agent, "key_changed": member.offered_key.is_some(),
                "muted": identity.muted_agents.contains(id), "signs_envelopes": member.signs_envelopes,
                "provisional": member.provisional, "contested_with": swarm.rivals(id),
                "endpoint_change": member.endpoint_change,
            }));
            continue;
        }
        let mut marks = Vec::new();
        let is = [
            (*id == agent, "you"),
            (*id == swarm.master, "master"),
            (identity.muted_agents.contains(id), "muted"),
            (member.provisional, "provisional"),
            (member.offered_key.is_some(), "KEY CHANGED"),
        ];
        marks.extend(is.into_iter().filter(|(is, _)| *is).map(|(_, mark)| mark.to_owned()));
        marks.extend(swarm.rivals(id).iter().map(|rival| format!("names the key of {rival}")));
        if let Some(change) = &member.endpoint_change {
            marks.push(format!("endpoint changed {:.0} from {}", change.at, change.from));
        }
        let marks = if marks.is_empty() { String::new() } else { format!("  ({})", marks.join(", ")) };
        let key = member.public_key.fingerprint();
        context.printer.line(format_args!("{address}  {}  {key}{marks}", member.endpoint));
    }
    for contested in swarm.contested_keys() {
        context.printer.note(format_args!("{}: {}.", contested.message(), contested.hint(&agent)));
    }
    note_rejected_members(context, &swarm);
    Ok(())
}

/// Prints the members of a swarm that this hub rejects, with the reason.
fn note_rejected_members(context: &Context, swarm: &Swarm) {
    for (id, reason) in &swarm.left_out {
        context.printer.note(format_args!("'{id}' is left out: {reason}"));
    }
}

pub(super) async fn sync(args: OneSwarm, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    swarms.sync(args.swarm.as_deref()).await?;
    print_action(context, "asked", "the master");
    Ok(())
}

pub(super) async fn mute(args: Mute, mute: bool, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let what = match (&args.member, &args.swarm) {
        (Some(member), _) => {
            let agent = args.agent.as_deref();
            let muted = swarms.mute_agent(agent, member, mute).await?;
            if !swarms.knows_peer(&swarms.identity(agent)?.agent, &muted) {
                context
                    .printer
                    .note(format_args!("No member with the id '{muted}' is in a swarm of yours now."));
            }
            muted.to_string()
        }
        (None, swarm) => swarms.mute_swarm(swarm.as_deref(), mute).await?.to_string(),
    };
    print_action(context, if mute { "muted" } else { "unmuted" }, &what);
    Ok(())
}

/// Prints which action was done to which agent or swarm.
pub(super) fn print_action(context: &Context, what: &'static str, whom: &str) {
    if context.printer.is_json() {
        context.printer.object(&json!({ "status": what, "name": whom }));
    } else {
        context.printer.line(format_args!("{what} {whom}"));
    }
}
