//! Reapers: supervisor processes that kill the programs of a host, however the host exits.
//!
//! The host is the Switchboard process that runs programs. A host starts one root, and the root starts one reaper for
//! each program:
//!
//! ```text
//! host → root (subreaper) → reaper (subreaper) → program → its descendants
//! ```
//!
//! On Linux, the nearest subreaper adopts a descendant that leaves its process group, its session and its parent, even
//! if the descendant clears its environment. A reaper kills its children until it has none; then no process of its
//! program remains. Only descendants of the program are killed: a child keeps its pid until it is reaped, so a kill
//! never hits a later process with the same pid.
//!
//! Each process detects the exit of those above it. A reaper detects the host's exit by its control socket, and the
//! root's exit by a pipe. The root detects the host's exit by its own socket. If a reaper itself is killed, its program
//! becomes a child of the root, and the root kills it. The host sees the control socket close only after that, because
//! the root holds a copy of the socket until then.
//!
//! On other systems, a descendant that leaves its parent escapes unless it stays in the program's process group.

mod client;
mod server;
mod wire;

pub use self::client::ReaperClient;
pub(crate) use self::client::{Pipes, Started, next_event};
pub use self::server::run;
pub(crate) use self::wire::{DETACH, Event, KILL, Request, TERMINATE};
