//! The listener on real sockets: real TLS with a CA of the test's own, real programs at the other end.

mod acme;
mod http2;
mod http3;
mod limits;
mod proxy;
mod rig;
mod shutdown;
mod tls;

pub(crate) use self::rig::{PATIENCE, Rig, within};
