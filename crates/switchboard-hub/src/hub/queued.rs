//! A message in the writer's queue, which is accepted once the journal is on disk.

use super::Hub;
use crate::error::HubError;
use crate::store::writer::Pending;
use crate::submit::Accepted;

/// A message whose place in the journal is settled and which is not accepted yet.
pub struct Queued {
    pub(super) hub: Hub,
    pub(super) pending: Pending<Accepted>,
}

impl Queued {
    /// Waits until the message is on disk.
    pub async fn accepted(self) -> Result<Accepted, HubError> {
        let answer = self.pending.result().await;
        self.hub.note_damage(&answer);
        answer
    }
}
