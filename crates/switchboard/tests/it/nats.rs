//! Hubs linked over a real nats-server: two processes that write to each other during failures.

mod auth;
mod basics;
mod channels;
mod claims;
mod cluster;
pub(crate) mod hub;
mod hub_names;
mod interest;
mod links;
mod order;
mod outages;
mod presence;
mod receipts;

use test_support::nats::{NatsServer, Release};
use test_support::tools;

/// Starts one server; `None` skips the test.
pub(crate) fn server(test: &str, release: Release, more: &str) -> Option<NatsServer> {
    NatsServer::start(release, more).map_err(|reason| tools::skip(test, &reason)).ok()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}
