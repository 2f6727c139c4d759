//! HTTPS in both directions: the public listener, and the client for addresses that others have named.
//!
//! [`listen`] serves a router on one public address over HTTP/1.1, HTTP/2 and, where it is asked for, HTTP/3. The
//! certificate comes from files or by ACME (RFC 8555); or a proxy in front has it, and the listener speaks plain HTTP on
//! the loopback address. [`Client`] calls `https` URLs that strangers may have written: it connects to checked addresses
//! only, and reads no more than it was told to.
//!
//! The crate knows nothing of swarms, agents or messages: what is served is the router's business.

mod error;
mod host;
mod settings;
mod trust;

mod client;

mod acme;
mod activity;
mod certificate;
mod certificate_files;
mod certificate_source;
mod connections;
mod forwarded;
mod http3;
mod listen;
mod middleware;
mod permits;

#[cfg(test)]
mod listen_tests;

pub use certificate::Certificate;
pub use client::{Client, Response};
pub use error::Error;
pub use listen::{ListenerHandle, listen};
pub use middleware::ClientAddress;
/// The form in which URLs are given to [`Client`].
pub use reqwest::Url;
pub use settings::{Acme, Challenge, ClientSettings, Limits, ListenLimits, Mode, Settings};
