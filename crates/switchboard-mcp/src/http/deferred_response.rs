//! The response to a request that takes its time.
//!
//! Without a session `rmcp` begins a response when there is something to say, because until then the answer may
//! decide its status. A call that waits for half an hour would leave its client without a byte, and clients give up after
//! a minute. So the response begins before the answer is there, as a stream of events that says nothing yet.

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

/// A response that begins now and says what `answer` says, once there is one. Closing it gives the request up.
pub(super) fn response(
    answer: impl Future<Output = Response> + Send + 'static,
    keep_alive: Duration,
) -> Response {
    let mut comments = interval(keep_alive);
    comments.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = Deferred { answer: answer.map(events).flatten_stream().boxed(), keep_alive: Some(comments) };
    (stream_headers(), Body::from_stream(body)).into_response()
}

/// An answer as the events of a stream.
pub(super) fn events(answer: Response) -> BoxStream<'static, Result<Bytes, axum::Error>> {
    let kind = answer.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes().to_owned()).unwrap_or_default();
    if kind.starts_with(b"text/event-stream") {
        answer.into_body().into_data_stream().boxed()
    } else if kind.starts_with(b"application/json") {
        // What would have been the whole body is the only event.
        let whole =
            async { axum::body::to_bytes(answer.into_body(), usize::MAX).await.map(|json| event(&json)) };
        whole.into_stream().boxed()
    } else {
        // `rmcp` has no answer: the server ends.
        empty().boxed()
    }
}

/// The body.
struct Deferred {
    answer: BoxStream<'static, Result<Bytes, axum::Error>>,
    /// Signs of life until the answer begins, which has its own.
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
