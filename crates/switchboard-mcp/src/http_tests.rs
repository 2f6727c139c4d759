//! HTTP server, tested with raw bytes over real sockets and with `rmcp`'s client.

mod batches;
mod faults;
mod limits;
mod priming;
mod prompt;
mod replay;
mod rig;
mod sessions;
