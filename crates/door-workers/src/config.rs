//! Settings of the router.

use std::time::Duration;

/// The router's settings, with all defaults resolved.
#[derive(Debug, Clone)]
pub struct Config {
    /// Maximum length of a client's line, in bytes.
    pub max_line: usize,
    /// Minimum number of bytes of events that the log retains.
    pub retention: u64,
    /// Size in bytes at which the log starts a new segment.
    pub segment: u64,
    /// Maximum number of events by which a socket client may lag before the router disconnects it.
    pub lag: u64,
    /// Maximum time for which a client may leave written data unread before the router disconnects it.
    pub stall: Duration,
    /// Maximum number of injections queued for one node; the router rejects further ones.
    pub queue: usize,
    /// Time limit for a network client to send `hello`.
    pub hello: Duration,
    /// Time limit for an agent to confirm text that was added to its running turn.
    pub steer: Duration,
    /// Interval of heartbeats to a client that receives no events.
    pub heartbeat: Duration,
    /// Grace period for a worker to exit by itself. The worker is killed after two such periods.
    pub grace: Duration,
    /// Backoff before a worker restarts; it doubles with each consecutive failure.
    pub restart: Duration,
    /// Number of consecutive failures after which a worker is no longer restarted.
    pub restarts: u32,
    /// Maximum number of terminated jobs that are remembered.
    pub history: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Large enough for a prompt with a few files; the hub accepts bodies of up to 1 MiB.
            max_line: 4 << 20,
            retention: 64 << 20,
            segment: 4 << 20,
            lag: 200_000,
            stall: Duration::from_mins(1),
            queue: 10_000,
            hello: Duration::from_secs(10),
            // Short, because a client waits for this answer before the router handles its next commands.
            steer: Duration::from_secs(5),
            heartbeat: Duration::from_secs(15),
            grace: Duration::from_secs(2),
            restart: Duration::from_millis(500),
            restarts: 5,
            history: 200,
        }
    }
}
