//! The actions that reserve files and release reservations.

use std::path::Path;

use jiff::SignedDuration;
use switchboard_core::Pattern;
use switchboard_hub::{RESERVATION_LEASE, Reservation, ReservationRequest, WorkTree};

use crate::actor::Actor;
use crate::error::{ActionError, check_line};
use crate::send::check_lifetime;

/// Request to reserve files.
#[derive(Debug, Clone, Default)]
pub struct Reserve {
    /// Files, folders or patterns to reserve, relative to the folder of the request.
    pub paths: Vec<String>,
    /// Lease of the reservation: how long it lasts unless repeated. The default is [`RESERVATION_LEASE`].
    pub lease: Option<SignedDuration>,
    /// One line about the reservation that other agents see.
    pub note: Option<String>,
    /// True to reserve the files in every working tree of the repository.
    pub shared: bool,
}

/// Reserves files for the agent, with a lease.
pub async fn reserve(
    actor: Actor<'_>,
    folder: &Path,
    request: Reserve,
) -> Result<Vec<Reservation>, ActionError> {
    if request.paths.is_empty() {
        return Err(ActionError::Empty { field: "paths" });
    }
    check_line("note", request.note.as_deref())?;
    check_lifetime("lease", request.lease)?;
    let (tree, patterns) = locate(actor, folder, &request.paths)?;
    let (shared, note) = (request.shared, request.note);
    let lease = request.lease.unwrap_or(RESERVATION_LEASE);
    let agent = actor.registered().await?;
    let request = ReservationRequest { agent, tree, patterns, shared, note, lease };
    Ok(actor.workspace.hub().claims().reserve(request).await?)
}

/// Releases the agent's reservations of these paths. Without paths, releases all of them in the tree.
///
/// Returns how many reservations were released.
pub async fn release_reservations(
    actor: Actor<'_>,
    folder: &Path,
    paths: &[String],
) -> Result<usize, ActionError> {
    let (tree, patterns) = locate(actor, folder, paths)?;
    let released = actor.workspace.hub().claims().unreserve(actor.agent.clone(), tree, patterns).await?;
    if released == 0 && !paths.is_empty() {
        return Err(ActionError::NotReserved { patterns: paths.to_vec() });
    }
    Ok(released)
}

/// Finds the working tree of a folder, and resolves patterns that are relative to the folder.
fn locate(
    actor: Actor<'_>,
    folder: &Path,
    paths: &[String],
) -> Result<(WorkTree, Vec<Pattern>), ActionError> {
    let inner = actor.workspace.tree().root().path();
    let workspace = inner.parent().unwrap_or(inner);
    let (folder, tree) = WorkTree::locate(folder, workspace)?;
    let mut patterns = Vec::new();
    for text in paths {
        patterns.extend(tree.patterns(&folder, text)?);
    }
    Ok((tree, patterns))
}
