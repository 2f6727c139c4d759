//! Event streams for messages outside any call, if the server offers such streams.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::json;
use switchboard_core::json::to_raw;
use tokio::time::{Instant, sleep};

use super::events::EventParser;
use super::{HttpTransport, Reply, name, read_events, retry};
use crate::child::connection::Connection;
use crate::child::envelope;
use crate::child::error::ChildError;
use crate::child::meta::Meta;
use crate::host::Caller;

/// Initial and maximum backoff before a stream is opened again.
const WAIT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Keeps the event stream of a session open, if the server offers one.
pub(super) async fn listen_in_session(transport: Arc<HttpTransport>, connection: Arc<Connection>) {
    let listening = async {
        let mut events = EventParser::new(connection.shared.options.message_cap);
        let mut wait = WAIT.0;
        let mut had_one = false;
        loop {
            let last = events.last_id.clone();
            let started = Instant::now();
            match transport.get(&connection, last.as_deref()).await {
                Ok(response) => {
                    had_one = true;
                    let mut stream = EventParser::new(connection.shared.options.message_cap);
                    (stream.last_id, stream.retry) = (last, events.retry);
                    let outcome = read_events(&connection, response, &mut stream, None).await;
                    tracing::debug!(child = connection.shared.name(), ?outcome, "the session's stream ended");
                    events = stream;
                }
                // The server offered a stream before, so treat the failure as temporary.
                Err(error) if had_one => {
                    tracing::debug!(child = connection.shared.name(), %error, "the session has no stream");
                }
                // A server that offers no stream rejects the request, usually with 405.
                Err(_) => return,
            }
            if started.elapsed() > WAIT.1 {
                wait = WAIT.0;
            }
            sleep(retry(&events).max(wait)).await;
            wait = (wait * 2).min(WAIT.1);
        }
    };
    tokio::select! {
        () = connection.ended() => {}
        () = listening => {}
    }
}

/// Keeps a subscription to list changes open, if the server announces such changes.
pub(super) async fn subscribe(transport: Arc<HttpTransport>, connection: Arc<Connection>) {
    let Some(opened) = connection.initialized() else { return };
    let tells = |list: &str| {
        opened.capabilities.get(list).and_then(|list| list.get("listChanged")?.as_bool()).unwrap_or_default()
    };
    let (tools, prompts, resources) = (tells("tools"), tells("prompts"), tells("resources"));
    if !(tools || prompts || resources) {
        return;
    }
    let wanted = json!({"notifications": {
        "toolsListChanged": tools,
        "promptsListChanged": prompts,
        "resourcesListChanged": resources,
    }});
    let wanted = Meta::Modern.apply(Some(&to_raw(&wanted)), &Caller::default(), None);
    let listening = async {
        let mut wait = WAIT.0;
        loop {
            let body = envelope::request(connection.next_id(), "subscriptions/listen", wanted.as_deref());
            match transport.listen(&connection, body).await {
                Ok(()) => wait = WAIT.0,
                // Stop listening, because a rejection is permanent.
                Err(ChildError::Rpc(_)) => return,
                Err(_) => wait = (wait * 2).min(WAIT.1),
            }
            sleep(wait).await;
        }
    };
    tokio::select! {
        () = connection.ended() => {}
        () = listening => {}
    }
}

impl HttpTransport {
    async fn listen(&self, connection: &Arc<Connection>, body: Vec<u8>) -> Result<(), ChildError> {
        let mut headers = self.common(connection, true);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(name::headers("subscriptions/listen", None));
        let response = self.send(connection, Method::POST, headers, body).await?;
        if let Reply::Stream(response) = self.check(connection, response).await? {
            let mut events = EventParser::new(connection.shared.options.message_cap);
            read_events(connection, response, &mut events, None).await?;
        }
        Ok(())
    }
}
