//! Submission that is queued in the writer and not yet accepted.

use super::Hub;
use crate::error::HubError;
use crate::journal::submit::Accepted;
use crate::store::writer::Pending;

/// Queued message: its order in the journal is fixed, and its acceptance is pending.
pub struct Queued {
    pub(super) hub: Hub,
    pub(super) pending: Pending<Accepted>,
}

impl Queued {
    /// Waits until the message is on disk (accepted).
    pub async fn accepted(self) -> Result<Accepted, HubError> {
        let answer = self.pending.result().await;
        self.hub.note_damage(&answer);
        answer
    }
}
