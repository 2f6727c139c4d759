//! CPU share of each side, because clients and hub share the cores.

use std::num::NonZero;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Number of ticks per second in `/proc/PID/stat`, on every Linux.
const TICKS: u64 = 100;

/// Snapshot of the CPU time that both sides have used.
pub(super) struct Cores {
    at: Instant,
    clients: Duration,
    hub: Option<Duration>,
}

/// Share of all cores that each side has used since a snapshot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    pub(super) clients: f64,
    /// Share of the hub; Linux only.
    pub(super) hub: Option<f64>,
}

impl Cores {
    /// Takes a snapshot of both sides; `pid` is the process of the hub.
    pub(super) fn now(pid: &str) -> Self {
        Self { at: Instant::now(), clients: of_this_process(), hub: of(pid) }
    }

    pub(super) fn since(&self, pid: &str) -> Shares {
        let now = Self::now(pid);
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let all = (now.at - self.at).as_secs_f64() * f64::from(u32::try_from(cores).unwrap_or(1));
        let share = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / all;
        let hub = now.hub.zip(self.hub).map(|(now, then)| share(now, then));
        Shares { clients: share(now.clients, self.clients), hub }
    }
}

fn of_this_process() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn of(pid: &str) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character but ends with the last parenthesis. The 12th and 13th field after the name are
    // user and system time.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(Duration::from_millis((user + system) * 1000 / TICKS))
}
