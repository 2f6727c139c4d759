//! Checks of the journal: its rows, its hash chain, and the deliveries of its messages.

use door_workspace::{Workspace, to_native};
use switchboard_core::Door;
use switchboard_hub::{Extent, MissingDeliveries};

use super::{Check, Status};
use crate::commands::inbox::count;
use crate::failure::Failure;

pub(super) async fn check_rows(
    workspace: &Workspace,
    fix: bool,
    extent: Extent,
) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    let health = workspace.hub().database().health_of(extent).await?;
    let is_whole = workspace.hub().database().is_covered_by(extent).await?;
    if health.complaints.is_empty() {
        let messages = usize::try_from(health.messages).unwrap_or(usize::MAX);
        checks.push(if is_whole {
            Check::new("database", Status::Ok, format!("intact, {}", count(messages, "message")))
        } else {
            let message = format!("the newest {} were checked and are intact", count(messages, "message"));
            Check::new("database", Status::Ok, message).hint("`switchboard doctor --full` checks all")
        });
    }
    for complaint in &health.complaints {
        checks.push(Check::new("database", Status::Fail, complaint.clone()));
    }
    for row in &health.damaged {
        let name = row.native.as_ref().map_or_else(|| format!("#{}", row.seq), |native| native.id.clone());
        if fix && workspace.restore_damaged(row).await? {
            checks.push(Check::new(
                "message",
                Status::Fixed,
                format!("{name} was damaged and has been restored"),
            ));
        } else {
            checks.push(
                Check::new("message", Status::Fail, format!("{name} is damaged in the journal"))
                    .hint("`--fix` restores it if an intact mailbox or archive file exists"),
            );
        }
    }
    // Damaged rows are reported separately.
    if health.damaged.is_empty() && is_whole {
        checks.extend(check_chain(workspace).await?);
    }
    for (door, waiting) in &health.pending {
        let wait = if *waiting == 1 { "1 delivery waits" } else { &format!("{waiting} deliveries wait") };
        let check = Check::new("outbox", Status::Warn, format!("{wait} for the {door} door"));
        checks.push(match door {
            Door::Workspace => {
                check.hint("they are retried by the next `switchboard send` or `switchboard serve`")
            }
            _ => check.hint("they are delivered while `switchboard serve` runs"),
        });
    }
    Ok(checks)
}

/// Reports a break in the hash chain; returns no check if the chain is intact.
async fn check_chain(workspace: &Workspace) -> Result<Option<Check>, Failure> {
    let found = workspace.hub().journal().audit(None).await?;
    Ok(found.first_bad.map(|bad| {
        let message = format!("entry {} fails verification: {}", bad.seq, bad.fault);
        Check::new("journal", Status::Fail, message)
            .hint("`switchboard audit verify` shows details; see docs/audit.md")
    }))
}

/// Reports messages whose deliveries are missing; returns no check if there are none.
pub(super) async fn deliveries(
    workspace: &Workspace,
    fix: bool,
    extent: Extent,
) -> Result<Vec<Check>, Failure> {
    let mut checks = Vec::new();
    for lost in workspace.hub().deliveries().missing(extent).await? {
        let restored = if fix { workspace.restore_deliveries(&lost).await? } else { 0 };
        checks.push(describe(&lost, restored > 0));
    }
    Ok(checks)
}

fn describe(lost: &MissingDeliveries, is_fixed: bool) -> Check {
    let message = &lost.stored.message;
    let id = to_native(message.id);
    if lost.agents.is_empty() {
        let text = format!("{id} has no delivery, because no agent is named {}", message.to);
        return Check::new("message", Status::Fail, text).hint(format!("`switchboard thread {id}` shows it"));
    }
    let agents: Vec<String> = lost.agents.iter().map(ToString::to_string).collect();
    let text = format!("the delivery of {id} to {} is lost", agents.join(", "));
    if is_fixed {
        return Check::new("message", Status::Fixed, text);
    }
    Check::new("message", Status::Fail, text)
        .hint("`--fix` restores its state from its file, or delivers it again if there is no file")
}
