//! HTTPS in both directions: the public listener (on `switchboard-http`) and the egress client.
//!
//! [`listen`] serves a router on one public address over HTTP/1.1, HTTP/2 and, if enabled, HTTP/3. The certificate
//! comes from files or from ACME (RFC 8555). Alternatively, a proxy terminates TLS, and the listener speaks plain HTTP
//! on the loopback address. [`Client`] calls untrusted `https` URLs: it connects only to addresses that pass the SSRF
//! check, and bounds each response.
//!
//! The crate knows nothing of swarms, agents or messages; those belong to the router.

mod error;
mod host;
mod settings;
mod trust;

mod client;

mod acme;
mod certificate;
mod certificate_files;
mod certificate_source;
mod http3;
mod listen;
mod tls;

#[cfg(test)]
mod listen_tests;

pub use certificate::Certificate;
pub use client::{Client, Response};
pub use error::Error;
pub use listen::{ListenerHandle, listen};
/// URL type of [`Client`].
pub use reqwest::Url;
pub use settings::{Acme, Challenge, ClientSettings, Limits, ListenLimits, Mode, Settings};
pub use switchboard_http::ClientAddress;
