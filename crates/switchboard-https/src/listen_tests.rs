//! Listener on real sockets, with real TLS, a test CA and real clients.

mod acme;
mod http2;
mod http3;
mod limits;
mod proxy;
mod rig;
mod shutdown;
mod tls;

pub(crate) use self::rig::{PATIENCE, Rig, with_timeout};
