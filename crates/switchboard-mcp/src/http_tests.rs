//! Raw bytes over real sockets, and `rmcp`'s own client.

mod batches;
mod faults;
mod limits;
mod priming;
mod prompt;
mod replay;
mod rig;
mod sessions;
