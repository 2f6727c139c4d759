//! Telling senders that nobody has looked at what they sent.

use jiff::SignedDuration;

use super::Hub;
use crate::unseen;

impl Hub {
    /// Tells whoever is due to be told; nothing where that is not wanted.
    ///
    /// Should it fail, the next tick tries again.
    pub(crate) async fn tell_unseen(&self) {
        let Some(after) = self.inner.config.unread_reminder_after else { return };
        let after = SignedDuration::try_from(after).unwrap_or(SignedDuration::MAX);
        let now = self.now();
        let look = move |db: &rusqlite::Connection| unseen::due(db, now, after);
        let due = match self.glance(look) {
            Some(due) => due,
            None => self.read(look).await.unwrap_or_default(),
        };
        let Some(due) = due else { return };
        let hub = self.clone();
        let told = self.write(move |tx| unseen::tell(tx, &due, &|agent| hub.presence(agent), after)).await;
        if let Err(error) = told {
            tracing::warn!(%error, "senders could not be told that their mail is not seen yet");
        }
    }
}
