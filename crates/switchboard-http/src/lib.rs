//! HTTP listener of all servers: accept loop, connection permits, timeouts, middleware and rate limits.
//!
//! [`Server`] serves a router on a bound socket over plain HTTP ([`Plain`]) or behind another [`Handshake`], such as
//! TLS. MCP uses it on the loopback address. The crate `switchboard-https` adds TLS, HTTP/3, certificates and the
//! egress client.
//!
//! Connections run on the runtime that [`Server::serve`] is polled on. On a single-threaded runtime, the requests of a
//! client are handled in their order.
//!
//! This crate knows nothing of MCP, swarms, certificates or messages.

mod activity;
mod forwarded;
mod middleware;
mod permits;
mod rate_limit;
mod server;

pub use activity::{ActiveRequest, ActivityTracker};
pub use forwarded::is_address_list;
pub use middleware::{ClientAddress, Middleware};
pub use permits::{ConnectionPermits, Permit};
pub use rate_limit::RateLimiter;
pub use server::{ConnectionLimits, Handshake, HttpVersion, Plain, Server, log_panic};
