//! What can be set about the router.

use std::time::Duration;

/// The router's settings, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// The longest line a client may send, in bytes.
    pub max_line: usize,
    /// How many bytes of events are kept at least, as long as there are so many.
    pub retention: u64,
    /// When a file of the log is full.
    pub segment: u64,
    /// How far a client on a socket may fall behind, in events, before it is cut off.
    pub lag: u64,
    /// How long a client may leave what is written to it unread before it is cut off.
    pub stall: Duration,
    /// How many injections may wait for one node. What comes after is rejected.
    pub queue: usize,
    /// How long a client on the network may take to say hello.
    pub hello: Duration,
    /// How long an agent may take to say whether it has taken what was added to its turn.
    pub steer: Duration,
    /// How often a silent router says that it is there.
    pub heartbeat: Duration,
    /// How long a worker has to end by itself, twice, before it is killed.
    pub grace: Duration,
    /// The pause before a worker is started again; doubled with each failure in a row.
    pub restart: Duration,
    /// How often in a row a worker may fail before it is left alone.
    pub restarts: u32,
    /// How many jobs that are over are remembered.
    pub history: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // A prompt with a few files in it; the hub takes bodies of up to a mebibyte.
            max_line: 4 << 20,
            retention: 64 << 20,
            segment: 4 << 20,
            lag: 200_000,
            stall: Duration::from_mins(1),
            queue: 10_000,
            hello: Duration::from_secs(10),
            // Its client waits for the answer, and with it what the client asks next.
            steer: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(2),
            restart: Duration::from_millis(500),
            restarts: 5,
            history: 200,
        }
    }
}
