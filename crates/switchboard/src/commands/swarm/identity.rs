//! The verbs `switchboard swarm init`, `export`, `import` and `key`: the identity of your agents.

use std::io::Read as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use door_swarm::{Endpoint, ImportMode, KeyConflict, Swarms};
use serde_json::json;

use super::{InSwarm, OwnAgent};
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::person::{Consent, require_person};
use crate::show;

/// Give an agent a key and an endpoint, so that it can take part in swarms.
///
/// Run it again with another endpoint to move the agent: its swarms are notified, signed with its key.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm init --agent codex --endpoint https://example.org/swarm"])]
pub(crate) struct Init {
    /// The agent's id, here and in its swarms
    #[arg(long, value_name = "NAME")]
    agent: String,

    /// Set the address at which others reach it: `https://` and a host, usually with the path `/swarm`
    #[arg(long, value_name = "URL")]
    endpoint: String,

    #[command(flatten)]
    consent: Consent,
}

/// Print an agent's state without its private key, to import it elsewhere.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm export > codex-state.json"])]
pub(crate) struct Export {
    #[command(flatten)]
    own: OwnAgent,
}

/// Import a state that `export` printed.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard swarm import codex-state.json",
    "switchboard swarm import codex-state.json --replace --accept-key bob",
])]
pub(crate) struct Import {
    /// The file; `-` reads it from stdin
    file: PathBuf,

    /// Use this agent of yours [default: the only one]
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,

    /// Remove what the imported state does not have
    #[arg(long)]
    replace: bool,

    /// Replace the pinned key of this member by the one in the file, after you compared it with its owner (repeatable)
    #[arg(long, value_name = "ID", requires = "replace")]
    accept_key: Vec<String>,
}

/// Show or change keys.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm key"])]
pub(crate) struct Key {
    /// Use this agent of yours [default: the only one]
    #[arg(long, global = true, value_name = "NAME")]
    agent: Option<String>,

    #[command(subcommand)]
    command: Option<KeyVerb>,
}

#[derive(Debug, Subcommand)]
enum KeyVerb {
    /// Show your agent's public key (the default)
    #[command(after_long_help = examples!["switchboard swarm key show"])]
    Show,
    /// Generate a new key and announce it to every swarm, signed with the old one
    #[command(after_long_help = examples!["switchboard swarm key rotate"])]
    Rotate,
    /// Accept a member's new key after you compared it with its owner
    #[command(after_long_help = examples!["switchboard swarm key accept bob --swarm research"])]
    Accept {
        /// The member
        member: String,
        #[command(flatten)]
        scope: InSwarm,
        /// Set the key, in base64 [default: the one that its endpoint names]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        #[command(flatten)]
        consent: Consent,
    },
}

pub(super) async fn init(args: Init, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let known = swarms.identity(Some(&args.agent)).ok();
    let is_moved = known.is_some_and(|identity| {
        let all = swarms.swarms();
        let is_in_swarms = all.iter().any(|(agent, swarm)| *agent == identity.agent && swarm.is_active());
        is_in_swarms && Endpoint::parse(&args.endpoint).is_ok_and(|new| new != identity.endpoint)
    });
    if is_moved {
        let action = format!("move {} to {}", show::plain(&args.agent), show::plain(&args.endpoint));
        require_person(context, &action, args.consent.yes)?;
    }
    let identity = swarms.init(&args.agent, &args.endpoint).await?;
    let printer = context.printer;
    if is_moved {
        printer.note(
            "Your swarms are told. A master with another program does not follow: leave its swarm and join again. \
             Open invites of yours that name another host are refused from now on; make new ones.",
        );
    }
    if printer.is_json() {
        printer.object(&json!({
            "agent_id": identity.agent, "endpoint": identity.endpoint, "public_key": identity.public_key,
            "home": identity.home.display().to_string(),
        }));
        return Ok(());
    }
    printer.line(format_args!("{} is reached at {}", identity.agent, identity.endpoint));
    printer.line(format_args!("key {} in {}", identity.public_key.fingerprint(), identity.home.display()));
    if swarms.config().listen.is_none() {
        printer.note(
            "Nothing listens yet: set swarm.listen and a certificate in ~/.config/switchboard/config.json, \
             then `switchboard serve`; or `switchboard serve --behind-proxy x-forwarded-for` behind nginx or Angie.",
        );
    }
    Ok(())
}

pub(super) fn export(args: &Export, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let state = swarms.export(args.own.agent.as_deref())?;
    if context.printer.is_json() {
        context.printer.object(&state);
    } else {
        context.printer.line(String::from_utf8_lossy(&state.to_bytes()).trim_end());
    }
    Ok(())
}

pub(super) async fn import(args: Import, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    /// Maximum size of an imported state, larger than any state within its limits.
    const LIMIT: u64 = 64 << 20;
    let mut bytes = Vec::new();
    let read = if args.file.as_os_str() == "-" {
        std::io::stdin().lock().take(LIMIT).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(&args.file).and_then(|file| file.take(LIMIT).read_to_end(&mut bytes))
    };
    read.map_err(|error| {
        Failure::new("file", Exit::NotFound, format!("cannot read {}: {error}", args.file.display()))
    })?;
    let merge = if args.replace { ImportMode::Replace } else { ImportMode::Add };
    let imported = swarms.import(args.agent.as_deref(), &bytes, merge, &args.accept_key).await?;
    let printer = context.printer;
    if printer.is_json() {
        let kept = |kept: &KeyConflict| json!({ "agent_id": kept.agent, "pinned": kept.pinned, "found": kept.found });
        printer.object(&json!({
            "imported": imported.swarms, "left_out": imported.left_out,
            "kept_keys": imported.kept_keys.iter().map(kept).collect::<Vec<_>>(),
        }));
    } else {
        printer.line(format_args!("{} swarms taken over", imported.swarms));
    }
    for kept in &imported.kept_keys {
        let (pinned, found) = (kept.pinned.fingerprint(), kept.found.fingerprint());
        printer.note(format_args!(
            "'{id}' keeps its pinned key {pinned}; the file has {found}. Compare it with its owner, then import again \
             with --replace --accept-key {id}.",
            id = kept.agent,
        ));
    }
    for (id, reason) in &imported.left_out {
        printer.note(format_args!("'{id}' is left out: {reason}"));
    }
    Ok(())
}

pub(super) async fn key(args: Key, context: &Context, swarms: &Swarms) -> Result<(), Failure> {
    let agent = args.agent.as_deref();
    let mut more = json!({});
    let (who, key) = match args.command.unwrap_or(KeyVerb::Show) {
        KeyVerb::Show => {
            let identity = swarms.identity(agent)?;
            (identity.agent.to_string(), identity.public_key.clone())
        }
        KeyVerb::Rotate => {
            let identity = swarms.identity(agent)?;
            let rotated = swarms.rotate_key(agent).await?;
            more = json!({ "ended_invites": rotated.ended_invites, "was_lost": rotated.was_lost });
            if rotated.ended_invites > 0 {
                let ended = rotated.ended_invites;
                context
                    .printer
                    .note(format_args!("{ended} open invites have ended with the old key; make new ones."));
            }
            if rotated.was_lost {
                context.printer.note(
                    "The old key is lost, so nobody can be told with it: each member has to compare the new one with \
                     you and run `switchboard swarm key accept`.",
                );
            }
            (identity.agent.to_string(), rotated.key)
        }
        KeyVerb::Accept { member, scope: InSwarm { swarm }, key, consent } => {
            require_person(context, &format!("accept a new key of {}", show::plain(&member)), consent.yes)?;
            let key = swarms.accept_key(swarm.as_deref(), &member, key.as_deref()).await?;
            (member, key)
        }
    };
    if context.printer.is_json() {
        let fingerprint = key.fingerprint();
        let mut shown = json!({ "agent_id": who, "public_key": key, "fingerprint": fingerprint });
        if let (Some(shown), Some(more)) = (shown.as_object_mut(), more.as_object_mut()) {
            shown.append(more);
        }
        context.printer.object(&shown);
    } else {
        context.printer.line(format_args!("{who}  {}  ({})", key.to_wire(), key.fingerprint()));
    }
    Ok(())
}
