//! How many calls are made at once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many hosts are remembered before those that nobody calls are forgotten.
const HOSTS: usize = 256;

/// Places for calls, in all and per host. Whoever finds none waits, within the time of its own call.
pub(super) struct CallPermits {
    global: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
    per_host: usize,
}

/// A place, given back when dropped.
pub(super) struct CallPermit {
    _host: Option<OwnedSemaphorePermit>,
    _global: Option<OwnedSemaphorePermit>,
}

impl CallPermits {
    pub(super) fn new(global: usize, per_host: usize) -> Self {
        Self {
            global: Arc::new(Semaphore::new(global.max(1))),
            hosts: Mutex::default(),
            per_host: per_host.max(1),
        }
    }

    /// Waits for a place. Those who wait for a host hold none of the places that others need.
    pub(super) async fn acquire(&self, host: &str) -> CallPermit {
        // Neither is ever closed, so both are granted.
        let host_semaphore = self.host_semaphore(host).acquire_owned().await.ok();
        let of_all = Arc::clone(&self.global).acquire_owned().await.ok();
        CallPermit { _host: host_semaphore, _global: of_all }
    }

    /// The places of one host, which are there as long as somebody holds or awaits one.
    fn host_semaphore(&self, host: &str) -> Arc<Semaphore> {
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
