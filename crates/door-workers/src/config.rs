//! Settings of the router.

use std::time::Duration;

/// The router's settings, resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// The longest line a client may send, in bytes.
    pub max_line: usize,
    /// Bytes of events that the log retains at least.
    pub retention: u64,
    /// Size in bytes at which the log starts a new segment.
    pub segment: u64,
    /// How many events a client on a socket may lag behind before the router disconnects it.
    pub lag: u64,
    /// How long a client may leave written data unread before the router disconnects it.
    pub stall: Duration,
    /// Maximum number of injections queued for one node; the router rejects further ones.
    pub queue: usize,
    /// Time limit for `hello` of a client on the network.
    pub hello: Duration,
    /// Time limit for an agent to confirm text that was added to its turn.
    pub steer: Duration,
    /// Interval of heartbeats to a client without events.
    pub heartbeat: Duration,
    /// Grace period for a worker to exit by itself, granted twice, before it is killed.
    pub grace: Duration,
    /// Backoff before a worker restarts; doubled with each consecutive failure.
    pub restart: Duration,
    /// Consecutive failures after which a worker is no longer restarted.
    pub restarts: u32,
    /// How many terminated jobs are remembered.
    pub history: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // A prompt with a few files; the hub accepts bodies of up to 1 MiB.
            max_line: 4 << 20,
            retention: 64 << 20,
            segment: 4 << 20,
            lag: 200_000,
            stall: Duration::from_mins(1),
            queue: 10_000,
            hello: Duration::from_secs(10),
            // The client waits for this answer, and so do its next commands.
            steer: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(2),
            restart: Duration::from_millis(500),
            restarts: 5,
            history: 200,
        }
    }
}
