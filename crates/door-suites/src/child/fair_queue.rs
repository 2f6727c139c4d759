//! Fair queue for a child with limited concurrency.
//!
//! Slots are granted to clients in round-robin order, and the requests of one client stay in order. A client with a
//! thousand requests therefore does not starve a client with one.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::host::Caller;

/// Fair queue of one child.
pub(super) struct FairQueue {
    state: Mutex<State>,
    /// Maximum number of waiting requests; further requests are rejected.
    max_waiting: usize,
}

struct State {
    free: usize,
    waiting: usize,
    /// One queue per client with waiting requests. The front request of the front queue is granted next.
    queues: VecDeque<ClientQueue>,
}

struct ClientQueue {
    client: Client,
    callers: VecDeque<oneshot::Sender<()>>,
}

/// Client identity: the address of the client's `Host`. All callers without a client share `None`.
type Client = Option<usize>;

/// Permit to send one request; dropping it grants the slot to the next waiter.
pub(super) struct Slot<'a>(&'a FairQueue);

/// Error: the queue is full. Carries the number of waiting requests.
#[derive(Debug)]
pub(super) struct QueueFull(pub(super) usize);

impl FairQueue {
    /// Creates a queue with `at_once` slots for up to `max_waiting` waiting requests.
    pub(super) fn new(at_once: usize, max_waiting: usize) -> Self {
        Self {
            state: Mutex::new(State { free: at_once.max(1), waiting: 0, queues: VecDeque::new() }),
            max_waiting,
        }
    }

    /// Waits for a slot, unless the queue is full.
    pub(super) async fn acquire(&self, caller: &Caller) -> Result<Slot<'_>, QueueFull> {
        let granted = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Slot(self));
            }
            if state.waiting >= self.max_waiting {
                return Err(QueueFull(state.waiting));
            }
            state.waiting += 1;
            let (grant, granted) = oneshot::channel();
            state.enqueue(client(caller), grant);
            granted
        };
        let mut waiter = Waiter { queue: self, granted };
        // This cannot fail, because a grant is always sent before its sender is dropped.
        let _ = (&mut waiter.granted).await;
        drop(waiter);
        Ok(Slot(self))
    }

    /// Returns the number of waiting requests.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }
}

impl State {
    fn enqueue(&mut self, client: Client, grant: oneshot::Sender<()>) {
        let at = self.queues.iter().position(|queue| queue.client == client);
        let at = at.unwrap_or_else(|| {
            self.queues.push_back(ClientQueue { client, callers: VecDeque::new() });
            self.queues.len() - 1
        });
        let callers = &mut self.queues[at].callers;
        // Cancelled waiters are skipped at their turn; remove them here only to keep them from accumulating.
        if callers.len() > 2 * self.waiting {
            callers.retain(|caller| !caller.is_closed());
        }
        callers.push_back(grant);
    }

    /// Grants the slot to the next waiter that was not cancelled.
    fn grant_next(&mut self) {
        while let Some(mut queue) = self.queues.pop_front() {
            let mut granted = false;
            while !granted && let Some(caller) = queue.callers.pop_front() {
                granted = caller.send(()).is_ok();
            }
            if !queue.callers.is_empty() {
                self.queues.push_back(queue);
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
        self.0.state.lock().grant_next();
    }
}

/// A waiting request. Dropping it leaves the queue.
struct Waiter<'a> {
    queue: &'a FairQueue,
    granted: oneshot::Receiver<()>,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        state.waiting -= 1;
        self.granted.close();
        // The slot was granted while this waiter was being dropped, so pass it on to the next one.
        if self.granted.try_recv().is_ok() {
            state.grant_next();
        }
    }
}

fn client(caller: &Caller) -> Client {
    caller.host.as_ref().map(|host| Arc::as_ptr(host).cast::<()>().addr())
}

#[cfg(test)]
#[path = "fair_queue_tests.rs"]
mod tests;
