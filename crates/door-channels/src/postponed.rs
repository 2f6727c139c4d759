//! Postponed posts: accepted, but their file cannot be written yet.

use switchboard_core::{Door, MessageId, Outcome, Route, error_chain};
use switchboard_hub::Handoff;

use crate::channels::Channels;
use crate::error::ChannelError;

/// Note topic of posts without a file for which no delivery retries the write.
const POSTPONED: &str = "postponed";

impl Channels {
    /// Postpones the file of an accepted post and returns the error for its sender.
    ///
    /// The outbox retries the deliveries that wait for the file. A post without recipients has no delivery to retry, so
    /// a note records it.
    pub(crate) async fn postpone(
        &self,
        id: MessageId,
        leased: Vec<Handoff>,
        error: ChannelError,
    ) -> ChannelError {
        let reason = error_chain(&error);
        if leased.is_empty() {
            let noted = self.hub().notes(Door::Channels).put(POSTPONED, id.to_string(), Some(reason)).await;
            if let Err(error) = noted {
                tracing::warn!(%error, "cannot record a post that has no file yet; it is in the journal");
            }
        } else {
            report_outcome(leased, &Outcome::Unreachable { reason }).await;
        }
        ChannelError::NotWritten { id, source: Box::new(error) }
    }

    /// Writes the files of recorded posts, up to the first error; returns their number.
    pub(crate) async fn write_postponed(&self) -> Result<usize, ChannelError> {
        let mut written = 0;
        for (key, _) in self.hub().notes(Door::Channels).all(POSTPONED).await? {
            if let Ok(id) = key.parse()
                && let Some(stored) = self.hub().journal().message(id).await?
                && let Some(Route::Channel { channel }) = &stored.message.origin.route
            {
                self.write_file(&stored.message, stored.seq, channel).await?;
                written += 1;
            }
            self.hub().notes(Door::Channels).put(POSTPONED, key, None).await?;
        }
        Ok(written)
    }
}

/// Reports the same outcome for many deliveries. If a report is lost, the next delivery attempt repeats it.
pub(crate) async fn report_outcome(leased: Vec<Handoff>, outcome: &Outcome) {
    let reports = leased.into_iter().map(|handoff| (handoff, outcome.clone())).collect();
    for answer in Handoff::report_all(reports).await {
        if let Err(error) = answer {
            tracing::warn!(%error, "cannot save the outcome of a delivery");
        }
    }
}

#[cfg(test)]
#[path = "postponed_tests.rs"]
mod tests;
