//! Whose turn it is with a child that takes only so many requests at once.
//!
//! Clients take turns, and each one's requests keep their order: a client that asks a thousand things does not
//! keep another waiting that asks one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::host::Caller;

/// The turns of one child.
pub(super) struct FairQueue {
    state: Mutex<State>,
    /// How many may wait. One more is turned away.
    most: usize,
}

struct State {
    free: usize,
    waiting: usize,
    /// One line for each client that waits; the first in the first line is next.
    lines: VecDeque<Line>,
}

struct Line {
    client: Client,
    callers: VecDeque<oneshot::Sender<()>>,
}

/// A client, by where it is in memory; all callers without one are one.
type Client = Option<usize>;

/// A turn, which goes to the next in line when it is dropped.
pub(super) struct Slot<'a>(&'a FairQueue);

/// As many wait already as may.
#[derive(Debug)]
pub(super) struct QueueFull(pub(super) usize);

impl FairQueue {
    /// So many at once, and so many who wait.
    pub(super) fn new(at_once: usize, most: usize) -> Self {
        Self { state: Mutex::new(State { free: at_once.max(1), waiting: 0, lines: VecDeque::new() }), most }
    }

    /// Waits for a turn.
    pub(super) async fn take(&self, caller: &Caller) -> Result<Slot<'_>, QueueFull> {
        let granted = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Slot(self));
            }
            if state.waiting >= self.most {
                return Err(QueueFull(state.waiting));
            }
            state.waiting += 1;
            let (grant, granted) = oneshot::channel();
            state.join(client(caller), grant);
            granted
        };
        let mut place = Place { turns: self, granted };
        // Nobody lets go of a grant without granting it, so that this does not fail.
        let _ = (&mut place.granted).await;
        drop(place);
        Ok(Slot(self))
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl State {
    fn join(&mut self, client: Client, grant: oneshot::Sender<()>) {
        let at = self.lines.iter().position(|line| line.client == client);
        let at = at.unwrap_or_else(|| {
            self.lines.push_back(Line { client, callers: VecDeque::new() });
            self.lines.len() - 1
        });
        let callers = &mut self.lines[at].callers;
        // Those who left are passed over when it would be their turn; here they only must not become many.
        if callers.len() > 2 * self.waiting {
            callers.retain(|caller| !caller.is_closed());
        }
        callers.push_back(grant);
    }

    /// Gives a turn to the next who still wants it.
    fn pass_on(&mut self) {
        while let Some(mut line) = self.lines.pop_front() {
            let mut granted = false;
            while !granted && let Some(caller) = line.callers.pop_front() {
                granted = caller.send(()).is_ok();
            }
            if !line.callers.is_empty() {
                self.lines.push_back(line);
            }
            if granted {
                return;
            }
        }
        self.free += 1;
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.state.lock().pass_on();
    }
}

/// A place in a line.
struct Place<'a> {
    turns: &'a FairQueue,
    granted: oneshot::Receiver<()>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.state.lock();
        state.waiting -= 1;
        self.granted.close();
        // Granted to somebody who left before hearing of it: the next one gets it.
        if self.granted.try_recv().is_ok() {
            state.pass_on();
        }
    }
}

fn client(caller: &Caller) -> Client {
    caller.host.as_ref().map(|host| Arc::as_ptr(host).cast::<()>().addr())
}

#[cfg(test)]
#[path = "fair_queue_tests.rs"]
mod tests;
