//! Fetches the tools of flat children that were never listed.
//!
//! A host's list request waits for the fetch, with a time limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::host::Caller;
use crate::suite::Suite;
use crate::suites::{Suites, SuitesEvent, differs};

/// Maximum time that a list request waits for children. Most children start within a second; some hosts time out after
/// ten.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(3);

/// The fetch in progress, shared by all list requests that wait for it.
#[derive(Default)]
pub(crate) struct PendingCatalogues(Mutex<Option<CatalogueFetch>>);

#[derive(Clone)]
struct CatalogueFetch {
    done: watch::Receiver<bool>,
    /// True if a list request timed out, so that its list lacks these children.
    is_overdue: Arc<AtomicBool>,
}

impl PendingCatalogues {
    /// Fetches the tools of children, and waits at most [`LIST_TIMEOUT`].
    ///
    /// Slow children continue in the background, and hosts get a list-changed notification when all are done.
    pub(crate) async fn fetch(&self, suites: &Suites, pending: Vec<Arc<Suite>>, caller: &Caller) {
        let mut fetch = self.0.lock().get_or_insert_with(|| start_fetch(suites, pending, caller)).clone();
        if tokio::time::timeout(LIST_TIMEOUT, fetch.done.wait_for(|is_done| *is_done)).await.is_err() {
            fetch.is_overdue.store(true, Ordering::Relaxed);
        }
    }
}

fn start_fetch(suites: &Suites, pending: Vec<Arc<Suite>>, caller: &Caller) -> CatalogueFetch {
    let (finished, done) = watch::channel(false);
    let is_overdue = Arc::new(AtomicBool::new(false));
    let fetch = CatalogueFetch { done, is_overdue: is_overdue.clone() };
    let (suites, caller) = (suites.clone(), Caller { host: caller.host.clone(), ..Caller::default() });
    tokio::spawn(async move {
        let before = suites.tools();
        suites.warm_all(pending, &caller).await;
        *suites.inner.pending_catalogues.0.lock() = None;
        suites.invalidate_index();
        let _ = finished.send(true);
        if is_overdue.load(Ordering::Relaxed) && differs(&before, &suites.tools()) {
            let _ = suites.inner.shared.events.send(SuitesEvent::ToolsChanged);
        }
    });
    fetch
}
