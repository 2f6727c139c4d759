//! How many calls are made at once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many hosts are remembered before those that nobody calls are forgotten.
const HOSTS: usize = 256;

/// Places for calls, in all and per host. Whoever finds none waits, within the time of its own call.
pub(super) struct Places {
    all: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
    per_host: usize,
}

/// A place, given back when dropped.
pub(super) struct Place {
    _of_host: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Places {
    pub(super) fn new(all: usize, per_host: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all.max(1))), hosts: Mutex::default(), per_host: per_host.max(1) }
    }

    /// Waits for a place. Those who wait for a host hold none of the places that others need.
    pub(super) async fn enter(&self, host: &str) -> Place {
        // Neither is ever closed, so both are granted.
        let of_host = self.of_host(host).acquire_owned().await.ok();
        let of_all = Arc::clone(&self.all).acquire_owned().await.ok();
        Place { _of_host: of_host, _of_all: of_all }
    }

    /// The places of one host, which are there as long as somebody holds or awaits one.
    fn of_host(&self, host: &str) -> Arc<Semaphore> {
        let mut hosts = self.hosts.lock();
        if let Some(places) = hosts.get(host).and_then(Weak::upgrade) {
            return places;
        }
        if hosts.len() >= HOSTS {
            hosts.retain(|_, places| places.strong_count() > 0);
        }
        let places = Arc::new(Semaphore::new(self.per_host));
        hosts.insert(host.to_owned(), Arc::downgrade(&places));
        places
    }
}
