//! Response to a JSON-RPC batch, which clients of 2025-03-26 may send over `/mcp`.
//!
//! `rmcp` does not support batches, so each message is handled as a separate request. If all answers arrive soon and
//! there are no other messages, the response is one array. Otherwise it is one event stream, so that a slow call does
//! not delay the others and can report progress.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::future::ready;
use futures_util::stream::{BoxStream, iter, select_all};
use futures_util::{Stream, StreamExt};
use http::StatusCode;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::deferred_response::events;
use super::error::json_response;
use super::sse::stream_headers;

/// Event stream that answers one message.
type Events = BoxStream<'static, Result<Bytes, axum::Error>>;

/// Merges `responses` into one response. The messages start in order and run concurrently.
pub(super) async fn response(responses: Vec<Response>, prompt: Duration) -> Response {
    let answers = responses.into_iter().filter(|response| response.status() != StatusCode::ACCEPTED);
    let streams: Vec<Events> =
        answers.map(|answer| events(answer).filter_map(|event| ready(without_id(event))).boxed()).collect();
    if streams.is_empty() {
        return StatusCode::ACCEPTED.into_response();
    }
    let mut events = select_all(streams);
    let mut first = Vec::new();
    let is_complete =
        tokio::time::timeout(prompt, collect_answers(&mut events, &mut first)).await == Ok(true);
    if is_complete {
        return json_response(StatusCode::OK, json_array(&first));
    }
    let all = iter(first.into_iter().map(Ok)).chain(events);
    (stream_headers(), Body::from_stream(all)).into_response()
}

/// Collects events until the streams end; returns false at the first event that is not an answer.
async fn collect_answers(
    events: &mut (impl Stream<Item = Result<Bytes, axum::Error>> + Unpin),
    first: &mut Vec<Bytes>,
) -> bool {
    while let Some(event) = events.next().await {
        let Ok(event) = event else { return false };
        let is_answer = event_data(&event).is_none_or(is_answer);
        first.push(event);
        if !is_answer {
            return false;
        }
    }
    true
}

/// Removes the id of an event, because a client that resumed by it would miss the other answers. Returns `None` for an
/// event that has only an id.
fn without_id(event: Result<Bytes, axum::Error>) -> Option<Result<Bytes, axum::Error>> {
    let event = match event {
        Ok(event) => event,
        Err(error) => return Some(Err(error)),
    };
    if event_data(&event).is_none() && !event.starts_with(b":") {
        return None;
    }
    let lines = event.split(|byte| *byte == b'\n').filter(|line| !line.starts_with(b"id:"));
    Some(Ok(lines.collect::<Vec<&[u8]>>().join(&b'\n').into()))
}

/// Returns the message in an event; `None` for a comment.
fn event_data(event: &[u8]) -> Option<&[u8]> {
    let mut lines = event.split(|byte| *byte == b'\n');
    let data = lines.find_map(|line| line.strip_prefix(b"data:"))?.trim_ascii();
    (!data.is_empty()).then_some(data)
}

fn is_answer(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Envelope {
        method: Option<IgnoredAny>,
    }
    serde_json::from_slice::<Envelope>(json).is_ok_and(|message| message.method.is_none())
}

fn json_array(events: &[Bytes]) -> Vec<u8> {
    let read =
        |event: &Bytes| event_data(event).and_then(|json| serde_json::from_slice::<Box<RawValue>>(json).ok());
    let answers: Vec<Box<RawValue>> = events.iter().filter_map(read).collect();
    serde_json::to_vec(&answers).unwrap_or_default()
}
