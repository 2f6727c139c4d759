//! The action that searches messages by their words.

use switchboard_core::Receipt;
use switchboard_hub::Stored;

use crate::actor::{Actor, may_read};
use crate::error::ActionError;

/// Maximum number of messages examined per search.
///
/// This bounds a search in which most messages belong to other agents.
const MAX_EXAMINED: usize = 2000;

/// Maximum number of messages per read of the index (batch size).
///
/// It is large enough that a search among the agent's own mail needs a single read.
const CHUNK: usize = 50;

/// Request to search messages.
#[derive(Debug, Clone, Default)]
pub struct Search {
    /// Words that a message must all contain.
    pub query: String,
    /// Journal position before which to search. By default the search starts with the newest message.
    pub before: Option<i64>,
    /// Maximum number of messages to return.
    pub limit: usize,
}

/// Messages that a search found, newest first.
#[derive(Debug)]
pub struct Found {
    /// The messages, each with the receipt of its deliveries.
    pub messages: Vec<(Stored, Receipt)>,
    /// Journal position from which to continue, if there may be more messages.
    pub next: Option<i64>,
}

/// Searches the messages that the agent sent or received. The person searches all messages.
///
/// The callback `progress` gets the number of messages that must be indexed first.
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
