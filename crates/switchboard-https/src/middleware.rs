//! What stands between a connection, whichever HTTP it speaks, and the router.

use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::ALT_SVC;
use http::{HeaderName, HeaderValue, Request, StatusCode};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};
use tower::ServiceExt;

use crate::activity::{ActiveRequest, ActivityTracker};
use crate::forwarded;

/// The address of whoever sent a request; behind a proxy, that of the proxy's client. An extension of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

/// The router, and what is added to its requests and answers.
pub(crate) struct Middleware {
    pub(crate) router: Router,
    /// The header in which a proxy names its client.
    pub(crate) proxy_header: Option<HeaderName>,
    /// How clients are told of HTTP/3.
    pub(crate) alt_svc: Option<HeaderValue>,
    pub(crate) body_timeout: Duration,
}

impl Middleware {
    /// Answers a request that came from `peer`.
    pub(crate) async fn handle<B>(
        &self,
        request: Request<B>,
        peer: IpAddr,
        busy: &ActivityTracker,
    ) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let active_request = busy.track_request();
        let peer = peer.to_canonical();
        let client = match &self.proxy_header {
            None => Ok(peer),
            Some(proxy_header) => forwarded::client_address(request.headers(), proxy_header, peer),
        };
        let mut response = match client {
            Ok(client) => {
                let mut request = request.map(|body| with_body_timeout(body, self.body_timeout));
                request.extensions_mut().insert(ClientAddress(client));
                self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
            }
            Err(bad) => {
                tracing::warn!(header = %bad.header, "the proxy's header names no address: request refused");
                (StatusCode::BAD_REQUEST, bad.to_string()).into_response()
            }
        };
        if let Some(alt_svc) = &self.alt_svc {
            response.headers_mut().insert(ALT_SVC, alt_svc.clone());
        }
        response.map(|body| Body::new(TrackedBody { body, _active: active_request }))
    }
}

/// The body of an answer, which keeps its connection busy.
struct TrackedBody {
    body: Body,
    _active: ActiveRequest,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Gives a request's body a time by which all of it must have come.
fn with_body_timeout<B>(body: B, limit: Duration) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    if body.is_end_stream() { Body::empty() } else { Body::new(TimedBody { body, limit, deadline: None }) }
}

/// The body of a request from a client that may send a byte a minute.
struct TimedBody<B> {
    body: B,
    limit: Duration,
    /// Runs from when the body is first waited for. Most come with their head and need none.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<B> HttpBody for TimedBody<B>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: Into<axum::BoxError>,
{
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let limit = self.limit;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(deadline.as_mut().poll(context));
        Poll::Ready(Some(Err("the request's body took too long".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
