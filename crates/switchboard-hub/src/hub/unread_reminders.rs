//! Periodic sending of unread reminders to senders.

use jiff::SignedDuration;

use super::Hub;
use crate::delivery::unread_reminders;

impl Hub {
    /// Sends the due reminders, if they are enabled. After a failure, the next tick retries.
    pub(crate) async fn send_unread_reminders(&self) {
        let Some(after) = self.inner.config.unread_reminder_after else { return };
        let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        let now = self.now();
        let look = move |db: &rusqlite::Connection| unread_reminders::due(db, now, after);
        let due = match self.try_read(&look) {
            Some(due) => due,
            None => self.read(look).await.unwrap_or_default(),
        };
        let Some(due) = due else { return };
        let hub = self.clone();
        let sent = self
            .write(move |tx| {
                unread_reminders::send_reminders(tx, &due, &|agent| hub.agents().presence(agent), after)
            })
            .await;
        if let Err(error) = sent {
            tracing::warn!(%error, "cannot send unread reminders");
        }
    }
}
