//! Flat children whose tools nobody has seen yet. A host that asks for the list waits for them, but not for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::host::Caller;
use crate::suite::Suite;
use crate::suites::{Suites, SuitesEvent, differs};

/// How long a list of tools waits for children. Most start within a second; some hosts give up after ten.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// Who is being asked, once for all who wait.
#[derive(Default)]
pub(crate) struct PendingCatalogues(Mutex<Option<Asking>>);

#[derive(Clone)]
struct Asking {
    done: watch::Receiver<bool>,
    /// Whether somebody was given a list without them.
    is_owed: Arc<AtomicBool>,
}

impl PendingCatalogues {
    /// Asks children for their tools. Those that take too long are asked on in the background, and when they have
    /// answered, hosts are told that the list has changed.
    pub(crate) async fn ask(&self, suites: &Suites, unseen: Vec<Arc<Suite>>, caller: &Caller) {
        let mut asking = self.0.lock().get_or_insert_with(|| begin(suites, unseen, caller)).clone();
        if tokio::time::timeout(PATIENCE, asking.done.wait_for(|is_done| *is_done)).await.is_err() {
            asking.is_owed.store(true, Ordering::Relaxed);
        }
    }
}

fn begin(suites: &Suites, unseen: Vec<Arc<Suite>>, caller: &Caller) -> Asking {
    let (tell, done) = watch::channel(false);
    let is_owed = Arc::new(AtomicBool::new(false));
    let asking = Asking { done, is_owed: is_owed.clone() };
    let (suites, caller) = (suites.clone(), Caller { host: caller.host.clone(), ..Caller::default() });
    tokio::spawn(async move {
        let before = suites.tools();
        suites.warm_all(unseen, &caller).await;
        *suites.inner.unseen.0.lock() = None;
        suites.relist();
        let _ = tell.send(true);
        if is_owed.load(Ordering::Relaxed) && differs(&before, &suites.tools()) {
            let _ = suites.inner.shared.events.send(SuitesEvent::ToolsChanged);
        }
    });
    asking
}
