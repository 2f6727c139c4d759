//! Replay cache for responses whose connection was lost; clients resume with `Last-Event-ID`.
//!
//! `rmcp` replays events until the call is answered, and then drops them
//! (<https://github.com/modelcontextprotocol/rust-sdk/pull/1165>). A client that resumed later would never get its
//! answer, so this cache holds the events of a closed response until the answer is a minute old.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Maximum number of cached events per response. The latest are retained; `rmcp` has the same limit.
const MAX_EVENTS: usize = 16;

/// Maximum number of cached responses per session. The oldest is evicted first.
const MAX_RESPONSES: usize = 16;

/// Time to live of a cached answer, equal to the `completed_cache_ttl` of `rmcp`.
const ANSWER_TTL: Duration = Duration::from_mins(1);

/// Number that `rmcp` gives to an HTTP request of a session.
pub(super) type RequestNumber = u64;

/// Cached responses of one session. Clones share the same cache.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplayCache(Arc<Mutex<BTreeMap<RequestNumber, watch::Receiver<Option<CachedEvents>>>>>);

/// Latest events of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedEvents(VecDeque<ServerSseMessage>);

/// Parsed `Last-Event-ID` of a response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastEventId {
    index: usize,
}

impl LastEventId {
    /// Parses `INDEX/REQUEST`; `None` for an event of the session's own stream, which is `INDEX`.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (index, _) = id.split_once('/')?;
        Some(Self { index: index.parse().ok()? })
    }

    /// Returns true if `event` is a later event of the same response.
    pub(super) fn precedes(self, event: &ServerSseMessage) -> bool {
        let found = event.event_id.as_deref().and_then(Self::parse);
        found.is_none_or(|event| event.index > self.index)
    }
}

impl CachedEvents {
    pub(super) fn push(&mut self, event: ServerSseMessage) {
        if self.0.len() == MAX_EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    fn has_answer(&self) -> bool {
        let message = self.0.back().and_then(|event| event.message.as_deref());
        matches!(message, Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)))
    }
}

impl ReplayCache {
    /// Caches the events of a closed response: those that were sent, and the `rest` up to the answer.
    pub(super) fn cache_response(
        &self,
        request: RequestNumber,
        mut events: CachedEvents,
        mut rest: mpsc::Receiver<ServerSseMessage>,
    ) {
        // A response that is dropped with the runtime has no client that could resume it, so it is not cached.
        let Ok(runtime) = Handle::try_current() else { return };
        let (complete, kept) = watch::channel(None);
        {
            let mut closed = self.0.lock();
            closed.insert(request, kept);
            if closed.len() > MAX_RESPONSES {
                closed.pop_first();
            }
        }
        let closed = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            while let Some(event) = rest.recv().await {
                events.push(event);
            }
            // If the response has no answer, `rmcp` has resumed it on another connection, so the entry is dropped.
            if events.has_answer() {
                complete.send_replace(Some(events));
                tokio::select! {
                    () = sleep(ANSWER_TTL) => {}
                    // The entry was evicted, or the session has ended.
                    () = complete.closed() => {}
                }
            }
            drop(complete);
            if let Some(closed) = closed.upgrade() {
                // The response may have been closed again in the meantime; that newer entry stays.
                closed.lock().retain(|_, kept| kept.has_changed().is_ok());
            }
        });
    }

    /// Returns the events after the last one that the client received; `None` if the response is not cached.
    pub(super) async fn replay_after(
        &self,
        request: RequestNumber,
        last: LastEventId,
    ) -> Option<mpsc::Receiver<ServerSseMessage>> {
        let mut kept = self.0.lock().get(&request)?.clone();
        let CachedEvents(events) = kept.wait_for(Option::is_some).await.ok()?.clone()?;
        let (replayed, receiver) = mpsc::channel(MAX_EVENTS);
        for event in events.into_iter().filter(|event| last.precedes(event)) {
            // The channel has room for all cached events.
            let _ = replayed.try_send(event);
        }
        Some(receiver)
    }
}
