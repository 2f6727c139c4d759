//! Middleware between a connection of any HTTP version and the router.

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

/// Address of the client, as an extension of each request. Behind a proxy, it is the address of the proxy's client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientAddress(pub IpAddr);

/// Middleware around a router: the additions to its requests and responses.
#[derive(Debug)]
pub struct Middleware {
    /// Routes of the application.
    pub router: Router,
    /// Header in which a proxy names its client.
    pub proxy_header: Option<HeaderName>,
    /// `Alt-Svc` value that announces HTTP/3.
    pub alt_svc: Option<HeaderValue>,
    /// Timeout of a complete request body. `None` if the router has a timeout of its own.
    pub body_timeout: Option<Duration>,
}

impl Middleware {
    /// Wraps a router without any middleware, except for [`ClientAddress`].
    pub fn plain(router: Router) -> Self {
        Self { router, proxy_header: None, alt_svc: None, body_timeout: None }
    }

    /// Serves a request from `peer`, and counts it as an active request in `activity`.
    pub async fn handle<B>(
        &self,
        request: Request<B>,
        peer: IpAddr,
        activity: Option<&ActivityTracker>,
    ) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let active = activity.map(ActivityTracker::track_request);
        let peer = peer.to_canonical();
        let client = match &self.proxy_header {
            None => Ok(peer),
            Some(proxy_header) => forwarded::client_address(request.headers(), proxy_header, peer),
        };
        let mut response = match client {
            Ok(client) => {
                let mut request = request.map(|body| match self.body_timeout {
                    Some(limit) => with_body_timeout(body, limit),
                    None => Body::new(body),
                });
                request.extensions_mut().insert(ClientAddress(client));
                self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
            }
            Err(bad) => {
                tracing::warn!(header = %bad.header, "the proxy's header has no address; rejected the request");
                (StatusCode::BAD_REQUEST, bad.to_string()).into_response()
            }
        };
        if let Some(alt_svc) = &self.alt_svc {
            response.headers_mut().insert(ALT_SVC, alt_svc.clone());
        }
        match active {
            Some(active) => response.map(|body| Body::new(TrackedBody { body, _active: active })),
            None => response,
        }
    }
}

/// Response body that keeps its request active until the body is dropped.
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

/// Wraps a request body with a timeout for the complete body.
fn with_body_timeout<B>(body: B, limit: Duration) -> Body
where
    B: HttpBody<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    if body.is_end_stream() { Body::empty() } else { Body::new(TimedBody { body, limit, deadline: None }) }
}

/// Request body with a timeout, against clients that send only a byte a minute (slowloris).
struct TimedBody<B> {
    body: B,
    limit: Duration,
    /// Timer that starts when the body is first awaited.
    ///
    /// Most bodies arrive together with their header and need no timer.
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
        Poll::Ready(Some(Err("the request body timed out".into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
