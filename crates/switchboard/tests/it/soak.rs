//! Soak test: twenty agents on every kind of door, while processes are killed, terminated and stopped for seconds. No
//! message is lost or shown twice, and no process or file remains.
//!
//! Twenty seconds here; `SWITCHBOARD_SOAK_SECONDS=600` is the long form, `SWITCHBOARD_SOAK_SEED` repeats its random
//! numbers.

mod cast;
mod ledger;
mod session;
mod stage;
mod verdict;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fastrand::Rng;

use self::cast::Cast;
use self::ledger::Ledger;
use self::stage::Stage;
use self::verdict::Problems;

/// Variable for how long messages are written.
const SECONDS: &str = "SWITCHBOARD_SOAK_SECONDS";
const SEED: &str = "SWITCHBOARD_SOAK_SEED";

/// Time between two disturbances in the long form; the short one would see too few of them.
const KILL_EVERY: Duration = Duration::from_secs(10);
const KILL_SOON: Duration = Duration::from_secs(3);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

#[test]
fn soak_storm_of_twenty_agents_while_everything_is_killed() -> Result<(), Problems> {
    let time = Duration::from_secs(number(SECONDS).unwrap_or(20));
    let seed = number(SEED).unwrap_or_else(|| fastrand::u64(..));
    println!("{SECONDS}={} {SEED}={seed}", time.as_secs());
    let mut dice = Rng::with_seed(seed);
    let Some(mut stage) = Stage::start("soak_storm_of_twenty_agents_while_everything_is_killed") else {
        return Ok(());
    };
    let ledger = Ledger::default();
    let sandboxes = stage.sandboxes().map(Clone::clone);
    let cast = Cast::new(sandboxes.each_ref().map(|sandbox| &**sandbox), &ledger, dice.fork());
    let settled = std::thread::scope(|scope| {
        // Also on failure: all agents are joined.
        let _curtain = Curtain(&cast);
        let playing = cast.play(scope);
        disturb(&mut stage, &cast, &mut dice, time);
        cast.enough.store(true, Ordering::Relaxed);
        for one in playing {
            one.join().unwrap();
        }
        stage.settle(&ledger)
    });
    println!(
        "{} messages in {} s, {} disturbances: {}",
        ledger.count(),
        time.as_secs(),
        stage.disturbances.len(),
        stage.disturbances.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    );
    settled?;
    verdict::assert_complete(&stage, &ledger)?;
    verdict::assert_nothing_remains(stage);
    Ok(())
}

/// Ends the agents when dropped.
struct Curtain<'c, 's>(&'c Cast<'s>);

impl Drop for Curtain<'_, '_> {
    fn drop(&mut self) {
        self.0.enough.store(true, Ordering::Relaxed);
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// Disturbs a process at intervals, and restarts the NATS server twice.
fn disturb(stage: &mut Stage, cast: &Cast<'_>, dice: &mut Rng, time: Duration) {
    let (start, every) = (Instant::now(), if time > KILL_EVERY * 6 { KILL_EVERY } else { KILL_SOON });
    let mut restarts = [time / 3, time * 2 / 3].into_iter().peekable();
    let mut next = start + every;
    while start.elapsed() < time {
        let pause = next.saturating_duration_since(Instant::now());
        // Here elapsed time is the event: the disturbances must not depend on what happens.
        std::thread::park_timeout(pause.min(Duration::from_millis(200)));
        if restarts.next_if(|at| start.elapsed() >= *at).is_some() {
            stage.restart_nats();
        }
        if Instant::now() >= next {
            stage.disturb_one(cast, dice);
            // After a stop of seconds, the next disturbance waits for its full interval.
            next = (next + every).max(Instant::now());
        }
    }
}
