//! Refreshes a catalogue that lacks a requested tool, because the server may just have announced new tools.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Suite;
use crate::catalogue::Catalogue;
use crate::host::Caller;

/// Time limit for a refresh. Real servers list their tools within a second.
const RENEWAL: Duration = Duration::from_secs(5);

impl Suite {
    /// Returns a newer catalogue if the server announced a change after `known` was fetched.
    ///
    /// Returns `None` if there was no change, or if the time limit was reached.
    pub(super) async fn renew(
        self: &Arc<Self>,
        known: &Arc<Catalogue>,
        caller: &Caller,
    ) -> Option<Arc<Catalogue>> {
        let renewed = timeout(RENEWAL, self.sync_with_child(caller)).await.ok().flatten();
        renewed.filter(|renewed| !Arc::ptr_eq(renewed, known))
    }

    async fn sync_with_child(self: &Arc<Self>, caller: &Caller) -> Option<Arc<Catalogue>> {
        let opened = self.child.initialized()?;
        if opened.capabilities.pointer("/tools/listChanged").is_some_and(|announces| announces == true) {
            // The ping is a barrier: its answer, even an error, arrives after all earlier messages, including
            // announcements.
            let ping = Caller { cancelled: caller.cancelled.clone(), ..Caller::default() };
            let _ = self.child.request("ping", None, &ping).await;
        }
        {
            let mut state = self.state.lock();
            if self.child.tool_changes() != state.changes {
                state.run = None;
            }
        }
        self.current(caller).await.ok()
    }
}
