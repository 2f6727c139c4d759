//! Raw bytes over real sockets, and `rmcp`'s own client.

mod batches;
mod faults;
mod limits;
mod rig;
mod sessions;
