//! Deferred response: headers first, the answer of a slow request later.
//!
//! Without a session, `rmcp` starts a response only when it has an event, because the answer determines the status. A
//! call that waits for half an hour would leave its client without a byte, and clients time out after a minute. The
//! response therefore starts before the answer exists, as an event stream with keep-alive comments.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{BoxStream, empty};
use futures_util::{FutureExt, Stream, StreamExt};
use http::header::CONTENT_TYPE;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::sse::{KEEP_ALIVE_COMMENT, event, stream_headers};

/// Starts an event stream that ends with `answer`. Closing the response drops `answer`.
pub(super) fn response(
    answer: impl Future<Output = Response> + Send + 'static,
    keep_alive: Duration,
) -> Response {
    let mut comments = interval(keep_alive);
    comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = Deferred { answer: answer.map(events).flatten_stream().boxed(), keep_alive: Some(comments) };
    (stream_headers(), Body::from_stream(body)).into_response()
}

/// Converts an answer to the events of a stream.
pub(super) fn events(answer: Response) -> BoxStream<'static, Result<Bytes, axum::Error>> {
    let kind = answer.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_owned()).unwrap_or_default();
    if kind.starts_with(b"text/event-stream") {
        answer.into_body().into_data_stream().boxed()
    } else if kind.starts_with(b"application/json") {
        // The complete JSON body becomes the only event.
        let whole =
            async { axum::body::to_bytes(answer.into_body(), usize::MAX).await.map(|json| event(&json)) };
        whole.into_stream().boxed()
    } else {
        // `rmcp` returns no answer while the server shuts down, so the stream is empty.
        empty().boxed()
    }
}

/// Body of the event stream.
struct Deferred {
    answer: BoxStream<'static, Result<Bytes, axum::Error>>,
    /// Keep-alive comments until the answer starts; its own stream sends them afterwards.
    keep_alive: Option<Interval>,
}

impl Stream for Deferred {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(event) = self.answer.poll_next_unpin(context) {
            self.keep_alive = None;
            return Poll::Ready(event);
        }
        match &mut self.keep_alive {
            Some(keep_alive) => {
                ready!(keep_alive.poll_tick(context));
                Poll::Ready(Some(Ok(KEEP_ALIVE_COMMENT)))
            }
            None => Poll::Pending,
        }
    }
}
