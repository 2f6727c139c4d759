//! Concurrency limit of outgoing calls, in total and per host.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Number of host entries at which entries without a running call are removed.
const HOSTS: usize = 256;

/// Permits for calls, in total and per host. A call waits for a permit until its own timeout.
pub(super) struct CallPermits {
    global: Arc<Semaphore>,
    hosts: Mutex<HashMap<String, Weak<Semaphore>>>,
    per_host: usize,
}

/// Permit for one call, released on drop.
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

    /// Waits for a permit, first for that of the host.
    ///
    /// A call that waits for its host therefore holds no global permit that other calls could use.
    pub(super) async fn acquire(&self, host: &str) -> CallPermit {
        // Neither semaphore is ever closed, so both acquisitions succeed.
        let host_semaphore = self.host_semaphore(host).acquire_owned().await.ok();
        let of_all = Arc::clone(&self.global).acquire_owned().await.ok();
        CallPermit { _host: host_semaphore, _global: of_all }
    }

    /// Returns the semaphore of a host, which exists while a call holds or awaits one of its permits.
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
