//! Finds messages by their words.

use switchboard_core::Receipt;
use switchboard_hub::Stored;

use crate::actor::{Actor, may_read};
use crate::error::ActionError;

/// Most messages examined per search, which bounds a search among the mail of others.
const MAX_EXAMINED: usize = 2000;

/// Most messages per read of the index: enough that a search among own mail needs one read.
const CHUNK: usize = 50;

/// A search.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Words that must all be in a message.
    pub query: String,
    /// The journal position before which to search; the newest by default.
    pub before: Option<i64>,
    /// Most messages to return.
    pub limit: usize,
}

/// Messages that a search found, newest first.
#[derive(Debug)]
pub struct Found {
    /// The messages, with the states of their deliveries.
    pub messages: Vec<(Stored, Receipt)>,
    /// The journal position to continue from, if there may be more.
    pub next: Option<i64>,
}

/// Searches the messages that the agent sent or received; the person searches all.
///
/// `progress` gets the number of messages that must be indexed first.
pub async fn search(actor: Actor<'_>, request: Search, progress: impl Fn(u64)) -> Result<Found, ActionError> {
    let hub = actor.workspace.hub();
    let me = hub.directory().await?.canonical(actor.agent);
    let (mut messages, mut next, mut examined) = (Vec::new(), request.before, 0);
    loop {
        if messages.len() >= request.limit || examined >= MAX_EXAMINED {
            return Ok(Found { messages, next });
        }
        let page = hub.journal().search_with(&request.query, next, CHUNK, &progress).await?;
        for stored in page.items {
            if messages.len() == request.limit {
                return Ok(Found { messages, next });
            }
            examined += 1;
            next = Some(stored.seq);
            if let Some((stored, receipt)) = hub.journal().receipt(stored.message.id).await?
                && may_read(&me, &stored, &receipt)
            {
                messages.push((stored, receipt));
            }
        }
        if !page.more {
            return Ok(Found { messages, next: None });
        }
    }
}
