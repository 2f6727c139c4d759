//! HTTP endpoints (§6): routing of a request to an agent and a resource, and the answer.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use jiff::SignedDuration;
use serde::Serialize;
use switchboard_core::AgentId;
use switchboard_https::ClientAddress;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::agent_id::PeerId;
use crate::model::Identity;
use crate::rate_limit::{RateLimit, rate_limit_key};
use crate::refusal::Refusal;
use crate::signing::ENVELOPE_CAPABILITY;
use crate::swarms::Swarms;
use crate::timestamp;
use crate::wake::Arrival;
use crate::wire::{Health, Info, PROTOCOL_VERSION};

/// Maximum number of bytes that are drained from a rejected body: 32 times the default limit.
const DRAIN_LIMIT: usize = 8 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Work that a request defers until after its answer.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// A peer that was unreachable has sent a message.
    PeerReachable { peer: AgentId },
    /// A member's signature failed, so its key should be checked.
    SignatureFailed { agent: PeerId, swarm: Uuid, member: PeerId },
    /// A new member was announced without its key.
    KeyMissing { agent: PeerId, swarm: Uuid, member: PeerId },
    /// An update was missed, so the roster must be requested from the master.
    Behind { agent: PeerId, swarm: Uuid },
    /// A member requests the roster.
    RosterRequested { agent: PeerId, swarm: Uuid, member: PeerId },
    /// The master has approved a join request of our agent.
    Approved { agent: PeerId, swarm: Uuid },
}

/// The HTTP server between the public listener and the hub. Clones share their state.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) swarms: Swarms,
    /// Rate limit of all requests, per client address.
    clients: RateLimit<IpAddr>,
    /// Rate limit of join requests, per client address.
    joins: RateLimit<IpAddr>,
    /// Rate limit of messages, per verified sender.
    pub(crate) senders: RateLimit<(Uuid, PeerId)>,
    /// Rate limit of messages, per swarm.
    pub(crate) swarm_rates: RateLimit<Uuid>,
    /// Queue of deferred tasks. When the queue is full, tasks are dropped, and the next message triggers them again.
    tasks: mpsc::Sender<Task>,
    /// Queue of arrivals for the wake-up call; `None` without a wake-up call.
    ///
    /// When the queue is full, arrivals are dropped: an earlier arrival triggers the call, and the agent then reads all
    /// messages.
    arrivals: Option<mpsc::Sender<Arrival>>,
}

impl std::ops::Deref for Server {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl Server {
    pub(crate) fn new(
        swarms: Swarms,
        tasks: mpsc::Sender<Task>,
        arrivals: Option<mpsc::Sender<Arrival>>,
    ) -> Self {
        let limits = swarms.config().limits;
        let (minute, hour) = (SignedDuration::from_mins(1), SignedDuration::from_hours(1));
        let inner = Inner {
            swarms,
            clients: RateLimit::new(limits.per_client, minute),
            joins: RateLimit::new(limits.joins, hour),
            senders: RateLimit::new(limits.per_sender, minute),
            swarm_rates: RateLimit::new(limits.per_swarm, minute),
            tasks,
            arrivals,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Builds the router of the public listener, which serves the protocol only.
    pub(crate) fn router(self) -> Router {
        Router::new().fallback(handle).with_state(self)
    }

    /// Defers a task, or drops it if the queue is full.
    pub(crate) fn defer(&self, task: Task) {
        let _ = self.tasks.try_send(task);
    }

    /// Reports an incoming message to the wake-up call.
    pub(crate) fn notify_arrival(&self, arrival: impl FnOnce() -> Arrival) {
        if let Some(arrivals) = &self.arrivals {
            let _ = arrivals.try_send(arrival());
        }
    }

    /// Counts a request against the rate limits of its client address, even if the request fails later.
    fn check_client_limits(&self, client: IpAddr, is_join: bool) -> Result<(), Refusal> {
        let (key, now) = (rate_limit_key(client), self.swarms.hub().now());
        let limited = |what| move |seconds| Refusal::rate_limited(what, seconds);
        self.clients.acquire(key, now).map_err(limited("requests from this address"))?;
        if is_join {
            self.joins.acquire(key, now).map_err(limited("requests to join from this address"))?;
        }
        Ok(())
    }

    async fn route(&self, request: Request) -> Result<Response, Refusal> {
        let client = request.extensions().get::<ClientAddress>();
        let client = client.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |client| client.0);
        let found = self.find_identity(request.uri().path());
        let is_join = matches!(found, Some((_, Resource::Join))) && *request.method() == Method::POST;
        // The limits apply before the request is read, because path, method, type and body are under the client's
        // control.
        if let Err(limited) = self.check_client_limits(client, is_join) {
            drain(request.into_body(), self.swarms.config().limits.body).await;
            return Err(limited);
        }
        let (identity, resource) = found.ok_or_else(Refusal::not_found)?;
        let expected =
            if matches!(resource, Resource::Message | Resource::Join) { Method::POST } else { Method::GET };
        if *request.method() != expected {
            return Err(Refusal::method_not_allowed(if expected == Method::POST { "POST" } else { "GET" }));
        }
        match resource {
            Resource::Health => Ok(json(StatusCode::OK, &self.health(&identity))),
            Resource::Info => Ok(json(StatusCode::OK, &info(&identity))),
            Resource::Message => {
                let (headers, body) = self.read_body(request).await?;
                let queued = self.accept_message(&identity, &headers, &body).await?;
                Ok(json(StatusCode::OK, &queued))
            }
            Resource::Join => {
                let (headers, body) = self.read_body(request).await?;
                let (status, answer) = self.accept_join_request(&identity, &headers, &body).await?;
                Ok(json(status, &answer))
            }
        }
    }

    /// Finds the agent and the resource of a path.
    ///
    /// The path consists of the path of the agent's endpoint and the resource. Some programs insert `/swarm` in between
    /// and others leave it out, so both forms are accepted.
    fn find_identity(&self, path: &str) -> Option<(Arc<Identity>, Resource)> {
        let (prefix, last) = path.rsplit_once('/')?;
        let resource = match last {
            "message" => Resource::Message,
            "join" => Resource::Join,
            "health" => Resource::Health,
            "info" => Resource::Info,
            _ => return None,
        };
        let snapshot = self.swarms.snapshot();
        let by = |matches: &dyn Fn(&str) -> bool| {
            snapshot.identities.values().find(|identity| matches(identity.endpoint.path())).cloned()
        };
        let identity = by(&|path| path == prefix)
            .or_else(|| by(&|path| path.strip_suffix("/swarm") == Some(prefix)))
            .or_else(|| by(&|path| prefix.strip_suffix("/swarm") == Some(path)))?;
        Some((identity, resource))
    }

    /// Reads a body up to the size limit.
    async fn read_body(&self, request: Request) -> Result<(HeaderMap, Bytes), Refusal> {
        let limit = self.swarms.config().limits.body;
        let (parts, body) = request.into_parts();
        let announced =
            parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) {
            drain(body, DRAIN_LIMIT).await;
            return Err(Refusal::too_large(limit));
        }
        let is_json = |kind: &HeaderValue| {
            kind.to_str().is_ok_and(|kind| {
                kind.split(';')
                    .next()
                    .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
            })
        };
        if parts.headers.get(CONTENT_TYPE).is_some_and(|kind| !is_json(kind)) {
            return Err(Refusal::invalid_format("Content-Type must be application/json"));
        }
        // Here, `Content-Length` is already known to be within the limit.
        let expected = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let (mut body, mut bytes) = (body, BytesMut::with_capacity(expected));
        while let Some(frame) = body.frame().await {
            let Ok(piece) =
                frame.map_err(|_| Refusal::invalid_format("the request body is incomplete"))?.into_data()
            else {
                continue;
            };
            if bytes.len() + piece.len() > limit {
                drain(body, DRAIN_LIMIT).await;
                return Err(Refusal::too_large(limit));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok((parts.headers, bytes.freeze()))
    }

    fn health(&self, identity: &Identity) -> Health {
        Health {
            status: "healthy".to_owned(),
            agent_id: identity.agent.to_string(),
            protocol_version: PROTOCOL_VERSION.to_owned(),
            timestamp: timestamp::render(self.swarms.hub().now()),
            message: None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Resource {
    Message,
    Join,
    Health,
    Info,
}

async fn handle(State(server): State<Server>, request: Request) -> Response {
    server.route(request).await.unwrap_or_else(IntoResponse::into_response)
}

/// Drains a body that is too large, up to `most` bytes.
///
/// Otherwise a client that is still sending would not read the answer.
async fn drain(mut body: Body, most: usize) {
    let reading = async {
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await {
            let piece = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(piece) else { return };
            left = rest;
        }
    };
    // After the timeout, draining ends and the request is answered.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, reading).await;
}

/// Builds the answer of `GET /swarm/info`.
fn info(identity: &Identity) -> Info {
    let capabilities = ["message", "system", "notification", ENVELOPE_CAPABILITY, "key-rotation-v1"];
    Info {
        agent_id: identity.agent.to_string(),
        endpoint: identity.endpoint.to_string(),
        public_key: identity.public_key.to_wire(),
        protocol_version: PROTOCOL_VERSION.to_owned(),
        capabilities: capabilities.map(str::to_owned).to_vec(),
        metadata: None,
    }
}

fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // A struct of strings and numbers always serializes.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = (status, Body::from(body)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
