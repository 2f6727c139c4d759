//! The verb `switchboard audit`.

use clap::{Args, Subcommand};
use door_workspace::Workspace;
use serde_json::{Value, json};
use switchboard_core::Hop;
use switchboard_hub::{Audit as Found, AuditEntry, BreakReason, ChainHash, ChainHead};
use switchboard_sys::clock::format_ago;

use crate::cli::help::examples;
use crate::cli::values::number;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Number of entries per read of the journal, which bounds memory use.
const STEP: usize = 500;

/// Verify the journal's chain of hashes, or export the journal.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard audit verify"])]
pub(crate) struct Audit {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Verify the whole journal and report the first entry that was changed, added or removed
    #[command(after_long_help = examples![
        "switchboard audit verify  # prints the head as NUMBER:HASH",
        "switchboard audit verify --head 7:0000000000000000000000000000000000000000000000000000000000000000",
    ])]
    Verify {
        /// Check that the journal still contains this head, which an earlier run printed
        #[arg(long, value_name = "NUMBER:HASH", value_parser = head)]
        head: Option<ChainHead>,
    },
    /// Export every entry with its hashes, one JSON object per line
    #[command(after_long_help = examples![
        "switchboard audit export",
        "switchboard audit export --after 1000 --no-bodies",
    ])]
    Export {
        /// Export only entries after this number
        #[arg(long, value_name = "NUMBER", default_value_t = 0, value_parser = number::<i64>)]
        after: i64,
        /// Leave out the text of messages and their metadata
        #[arg(long)]
        no_bodies: bool,
    },
}

pub(crate) async fn run(args: Audit, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let result = match args.command {
        Verb::Verify { head } => verify(&workspace, &context, head).await,
        Verb::Export { after, no_bodies } => export(&workspace, &context, after, !no_bodies).await,
    };
    workspace.close().await;
    result
}

/// Parses a journal head in the form that `verify` prints.
fn head(text: &str) -> Result<ChainHead, String> {
    let parts = text.split_once(':');
    let read = || Some(ChainHead { seq: parts?.0.parse().ok()?, hash: ChainHash::parse(parts?.1)? });
    read().ok_or_else(|| "it is NUMBER:HASH, as `switchboard audit verify` prints it".to_owned())
}

async fn verify(workspace: &Workspace, context: &Context, noted: Option<ChainHead>) -> Result<(), Failure> {
    let working = context.printer.working("reading the journal");
    let found = workspace.hub().journal().audit(noted).await?;
    if let Some(bar) = working {
        bar.finish_and_clear();
    }
    let end = found.head.map(|head| format!("{}:{}", head.seq, head.hash));
    if context.printer.is_json() {
        context.printer.object(&json!({
            "ok": found.bad == 0,
            "entries": found.entries,
            "head": end,
            "bad": found.bad,
            "first_bad": found.first_bad.as_ref().map(|bad| json!({
                "seq": bad.seq,
                "id": bad.id.map(|id| id.to_string()),
                "problem": bad.fault.to_string(),
            })),
            "breaks": found.breaks.iter().map(|noted| json!({
                "seq": noted.seq,
                "reason": noted.reason.as_str(),
                "at": noted.at.to_string(),
            })).collect::<Vec<_>>(),
        }));
    } else {
        print(workspace, context, &found);
        if let Some(end) = end {
            context.printer.line(format_args!("head {end}"));
        }
    }
    let Some(bad) = found.first_bad else { return Ok(()) };
    let id = bad.id.map(|id| format!(" ({})", door_workspace::to_native(id))).unwrap_or_default();
    let others =
        if found.bad > 1 { format!("; {} entries are bad in all", found.bad) } else { String::new() };
    let message = format!("entry {}{id} is bad: {}{others}", bad.seq, bad.fault);
    Err(Failure::new("audit", Exit::Failed, message)
        .hint("`switchboard audit export` has what is there; docs/audit.md says what can be made of it"))
}

/// Prints which parts of the journal the audit found intact, as text.
fn print(workspace: &Workspace, context: &Context, found: &Found) {
    let now = workspace.hub().now();
    let good = found.entries - found.bad.min(found.entries);
    context.printer.line(format_args!("{good} of {} entries are as they were written", found.entries));
    for noted in &found.breaks {
        let what = match noted.reason {
            BreakReason::Retention => "older entries were removed by retention",
            BreakReason::Recovered => "entries were lost when a damaged journal was replaced",
            BreakReason::Rebuilt => "the journal was made anew from files, and begins here",
            BreakReason::Upgraded => "what was here before the upgrade was chained by it",
            BreakReason::Restored => "the entry was damaged and put back from a file",
            BreakReason::Refused => "entries were taken back that the disk had not taken",
        };
        context.printer.line(format_args!(
            "  before entry {}: {what}, {}",
            noted.seq,
            format_ago(now, noted.at)
        ));
    }
}

async fn export(
    workspace: &Workspace,
    context: &Context,
    mut after: i64,
    bodies: bool,
) -> Result<(), Failure> {
    loop {
        let page = workspace.hub().journal().audit_entries(after, STEP).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = last.seq();
        for entry in &page {
            context.printer.object(&line(entry, bodies));
        }
    }
}

/// Renders a journal entry as JSON. Scripts rely on the key names.
fn line(entry: &AuditEntry, bodies: bool) -> Value {
    let text = |hash: Option<ChainHash>| hash.map(|hash| hash.to_string());
    let mut line = json!({
        "seq": entry.seq(),
        "previous": text(entry.previous),
        "content": text(entry.content),
        "hash": text(entry.hash),
    });
    let Ok(stored) = &entry.stored else {
        line["damaged"] = true.into();
        return line;
    };
    let message = &stored.message;
    let via = message.via.iter().map(|hop| match hop {
        Hop::Agent(agent) => json!({ "agent": agent.to_string() }),
        Hop::Hub(hub) => json!({ "hub": hub.to_string() }),
    });
    let more = json!({
        "id": message.id.to_string(),
        "from": message.from.to_string(),
        "to": message.to.to_string(),
        "kind": message.kind.as_str(),
        "in_reply_to": message.in_reply_to.map(|id| id.to_string()),
        "thread": message.thread.to_string(),
        "sent_at": message.sent_at.to_string(),
        "accepted_at": stored.accepted_at.to_string(),
        "expires_at": message.expires_at.map(|at| at.to_string()),
        "door": message.origin.native.door.as_str(),
        "scope": message.origin.native.scope,
        "native_id": message.origin.native.id,
        "verified": message.origin.verified,
        "via": via.collect::<Vec<_>>(),
    });
    if let (Value::Object(line), Value::Object(more)) = (&mut line, more) {
        line.extend(more);
        if bodies {
            line.insert("body".into(), message.body.as_str().into());
            line.insert("metadata".into(), message.metadata.clone().into());
        }
    }
    line
}
