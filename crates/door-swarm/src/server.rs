//! The endpoints (§6): which agent and which resource a request is for, and the answer.

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
use crate::ledger::Identity;
use crate::limits::{Limit, client_key};
use crate::problem::Problem;
use crate::signing::ENVELOPE_CAPABILITY;
use crate::stamp;
use crate::swarms::Swarms;
use crate::wake::Arrival;
use crate::wire::{Health, Info, PROTOCOL_VERSION};

/// How much of a body that is too large is read on, and for how long: 32 times what may be.
const DRAINED: usize = 8 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// What happened that the running door acts on after the answer is given.
#[derive(Debug, Clone)]
pub(crate) enum Task {
    /// A peer that could not be reached has written: it is back.
    Back { peer: AgentId },
    /// A member's key should be looked at: its signature failed.
    Doubted { agent: PeerId, swarm: Uuid, member: PeerId },
    /// A new member was announced without its key.
    KeyMissing { agent: PeerId, swarm: Uuid, member: PeerId },
    /// Something was missed: the master should be asked.
    Behind { agent: PeerId, swarm: Uuid },
    /// A member wants the roster.
    RosterWanted { agent: PeerId, swarm: Uuid, member: PeerId },
    /// The master has approved a join request of our agent.
    Approved { agent: PeerId, swarm: Uuid },
}

/// What stands between the public listener and the hub. Clones are handles on the same.
#[derive(Clone)]
pub(crate) struct Server {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) swarms: Swarms,
    /// Requests of any kind per client.
    clients: Limit<IpAddr>,
    /// Requests to join per client.
    joins: Limit<IpAddr>,
    /// Messages per sender, whose signature was verified.
    pub(crate) senders: Limit<(Uuid, PeerId)>,
    /// Messages per swarm, likewise.
    pub(crate) swarm_rates: Limit<Uuid>,
    /// Full, it drops what comes: it is found again at the next message.
    tasks: mpsc::Sender<Task>,
    /// For whoever wakes; nothing where nobody is to be woken. Full, it drops what comes: somebody is woken for those
    /// before it anyway, and looks for all of them.
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
            clients: Limit::new(limits.per_client, minute),
            joins: Limit::new(limits.joins, hour),
            senders: Limit::new(limits.per_sender, minute),
            swarm_rates: Limit::new(limits.per_swarm, minute),
            tasks,
            arrivals,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The router for the public listener. Nothing but the protocol is on it.
    pub(crate) fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }

    /// Leaves something for the running door; what does not fit is dropped.
    pub(crate) fn later(&self, task: Task) {
        let _ = self.tasks.try_send(task);
    }

    /// Tells whoever wakes that a message has come in.
    pub(crate) fn arrived(&self, arrival: impl FnOnce() -> Arrival) {
        if let Some(arrivals) = &self.arrivals {
            let _ = arrivals.try_send(arrival());
        }
    }

    /// Counts a request for the limits of its client, whatever becomes of it.
    fn count(&self, client: IpAddr, is_join: bool) -> Result<(), Problem> {
        let (key, now) = (client_key(client), self.swarms.hub().now());
        let limited = |what| move |seconds| Problem::rate_limited(what, seconds);
        self.clients.take(key, now).map_err(limited("requests from this address"))?;
        if is_join {
            self.joins.take(key, now).map_err(limited("requests to join from this address"))?;
        }
        Ok(())
    }

    async fn route(&self, request: Request) -> Result<Response, Problem> {
        let client = request.extensions().get::<ClientAddress>();
        let client = client.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |client| client.0);
        let found = self.find(request.uri().path());
        let is_join = matches!(found, Some((_, Resource::Join))) && *request.method() == Method::POST;
        // Before anything of it is read: path, method, type and body are the client's to choose.
        if let Err(limited) = self.count(client, is_join) {
            drain(request.into_body(), self.swarms.config().limits.body).await;
            return Err(limited);
        }
        let (identity, resource) = found.ok_or_else(Problem::no_such_place)?;
        let expected =
            if matches!(resource, Resource::Message | Resource::Join) { Method::POST } else { Method::GET };
        if *request.method() != expected {
            return Err(Problem::method(if expected == Method::POST { "POST" } else { "GET" }));
        }
        match resource {
            Resource::Health => Ok(json(StatusCode::OK, &self.health(&identity))),
            Resource::Info => Ok(json(StatusCode::OK, &info(&identity))),
            Resource::Message => {
                let (headers, body) = self.read(request).await?;
                let queued = self.take_message(&identity, &headers, &body).await?;
                Ok(json(StatusCode::OK, &queued))
            }
            Resource::Join => {
                let (headers, body) = self.read(request).await?;
                let (status, answer) = self.take_join(&identity, &headers, &body).await?;
                Ok(json(status, &answer))
            }
        }
    }

    /// The agent and the resource that a path names. The route is the path of the agent's endpoint; with and without the
    /// `/swarm` that some put between the two.
    fn find(&self, path: &str) -> Option<(Arc<Identity>, Resource)> {
        let (prefix, last) = path.rsplit_once('/')?;
        let resource = match last {
            "message" => Resource::Message,
            "join" => Resource::Join,
            "health" => Resource::Health,
            "info" => Resource::Info,
            _ => return None,
        };
        let book = self.swarms.book();
        let by = |matches: &dyn Fn(&str) -> bool| {
            book.identities.values().find(|identity| matches(identity.endpoint.path())).cloned()
        };
        let identity = by(&|path| path == prefix)
            .or_else(|| by(&|path| path.strip_suffix("/swarm") == Some(prefix)))
            .or_else(|| by(&|path| prefix.strip_suffix("/swarm") == Some(path)))?;
        Some((identity, resource))
    }

    /// Reads a body, as far as it may go.
    async fn read(&self, request: Request) -> Result<(HeaderMap, Bytes), Problem> {
        let limit = self.swarms.config().limits.body;
        let (parts, body) = request.into_parts();
        let announced =
            parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|length| length > limit as u64) {
            drain(body, DRAINED).await;
            return Err(Problem::too_large(limit));
        }
        let is_json = |kind: &HeaderValue| {
            kind.to_str().is_ok_and(|kind| {
                kind.split(';')
                    .next()
                    .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
            })
        };
        if parts.headers.get(CONTENT_TYPE).is_some_and(|kind| !is_json(kind)) {
            return Err(Problem::format("Content-Type must be application/json"));
        }
        // Announced, it is within the limit.
        let expected = announced.and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let (mut body, mut bytes) = (body, BytesMut::with_capacity(expected));
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| Problem::format("the request broke off"))?.into_data() else {
                continue;
            };
            if bytes.len() + piece.len() > limit {
                drain(body, DRAINED).await;
                return Err(Problem::too_large(limit));
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
            timestamp: stamp::render(self.swarms.hub().now()),
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

async fn answer(State(server): State<Server>, request: Request) -> Response {
    server.route(request).await.unwrap_or_else(IntoResponse::into_response)
}

/// Reads on in a body that is too large, so far as that is bearable, and forgets it: whoever still sends would not read the
/// answer otherwise.
async fn drain(mut body: Body, most: usize) {
    let reading = async {
        let mut left = most;
        while let Some(Ok(frame)) = body.frame().await {
            let piece = frame.data_ref().map_or(0, Bytes::len);
            let Some(rest) = left.checked_sub(piece) else { return };
            left = rest;
        }
    };
    // Out of time, it is answered all the same.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

/// What an agent says of itself.
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
    // What is answered is made of texts and numbers.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = (status, Body::from(body)).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
