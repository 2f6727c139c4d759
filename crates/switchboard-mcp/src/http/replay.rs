//! Replay of a response whose connection was lost, for the client that comes back with `Last-Event-ID`.
//!
//! `rmcp` replays events while a call goes on, and drops them together with the answer
//! (<https://github.com/modelcontextprotocol/rust-sdk/pull/1165>). A client that comes back later would never get its answer,
//! so the events of a closed response are kept here until the answer is a minute old.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::ServerSseMessage;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Most events kept of one response, the latest ones; `rmcp` keeps as many.
const EVENTS: usize = 16;

/// Most closed responses of one session. The oldest is dropped first.
const RESPONSES: usize = 16;

/// How long an answer is kept for its client; the `completed_cache_ttl` of `rmcp`.
const KEPT_FOR: Duration = Duration::from_mins(1);

/// Number that `rmcp` gives to an HTTP request of a session.
pub(super) type RequestNumber = u64;

/// Closed responses of one session. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct ClosedResponses(Arc<Mutex<BTreeMap<RequestNumber, watch::Receiver<Option<Events>>>>>);

/// The latest events of a response.
#[derive(Debug, Clone, Default)]
pub(super) struct Events(VecDeque<ServerSseMessage>);

/// A `Last-Event-ID` of the response to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastEvent {
    index: usize,
}

impl LastEvent {
    /// Reads `INDEX/REQUEST`; `None` for an event of the session's own stream, which is `INDEX`.
    pub(super) fn parse(id: &str) -> Option<Self> {
        let (index, _) = id.split_once('/')?;
        Some(Self { index: index.parse().ok()? })
    }

    /// Whether an event of the same response came later.
    pub(super) fn is_before(self, event: &ServerSseMessage) -> bool {
        let found = event.event_id.as_deref().and_then(Self::parse);
        found.is_none_or(|event| event.index > self.index)
    }
}

impl Events {
    pub(super) fn push(&mut self, event: ServerSseMessage) {
        if self.0.len() == EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    fn has_answer(&self) -> bool {
        let message = self.0.back().and_then(|event| event.message.as_deref());
        matches!(message, Some(ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)))
    }
}

impl ClosedResponses {
    /// Keeps the events of a response: those from before it was closed, and the `rest` until the answer.
    pub(super) fn keep(
        &self,
        request: RequestNumber,
        mut events: Events,
        mut rest: mpsc::Receiver<ServerSseMessage>,
    ) {
        // A response that is dropped with the runtime has no client that could come back.
        let Ok(runtime) = Handle::try_current() else { return };
        let (complete, kept) = watch::channel(None);
        {
            let mut closed = self.0.lock();
            closed.insert(request, kept);
            if closed.len() > RESPONSES {
                closed.pop_first();
            }
        }
        let closed = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            while let Some(event) = rest.recv().await {
                events.push(event);
            }
            // Without an answer, `rmcp` has resumed the response on another connection.
            if events.has_answer() {
                complete.send_replace(Some(events));
                tokio::select! {
                    () = sleep(KEPT_FOR) => {}
                    // It was dropped for a later one, or the session has ended.
                    () = complete.closed() => {}
                }
            }
            drop(complete);
            if let Some(closed) = closed.upgrade() {
                // The response may have been closed again meanwhile, and that entry stays.
                closed.lock().retain(|_, kept| kept.has_changed().is_ok());
            }
        });
    }

    /// Events of a response after the client's last one. `None` if it was not closed, or has been dropped.
    pub(super) async fn replay(
        &self,
        request: RequestNumber,
        last: LastEvent,
    ) -> Option<mpsc::Receiver<ServerSseMessage>> {
        let mut kept = self.0.lock().get(&request)?.clone();
        let Events(events) = kept.wait_for(Option::is_some).await.ok()?.clone()?;
        let (replayed, receiver) = mpsc::channel(EVENTS);
        for event in events.into_iter().filter(|event| last.is_before(event)) {
            // There is room for as many as are kept.
            let _ = replayed.try_send(event);
        }
        Some(receiver)
    }
}
