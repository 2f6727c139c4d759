//! Renewal of a catalogue that lacks a tool: the server may have announced other tools a moment ago.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Suite;
use crate::catalogue::Catalogue;
use crate::host::Caller;

/// Time limit for a renewal. Real servers list their tools within a second.
const RENEWAL: Duration = Duration::from_secs(5);

impl Suite {
    /// The newer catalogue, where the server announced a change after this one was taken. `None` where it did not, or is
    /// not done within the time limit.
    pub(super) async fn renew(
        self: &Arc<Self>,
        known: &Arc<Catalogue>,
        caller: &Caller,
    ) -> Option<Arc<Catalogue>> {
        let renewed = timeout(RENEWAL, self.catch_up(caller)).await.ok().flatten();
        renewed.filter(|renewed| !Arc::ptr_eq(renewed, known))
    }

    async fn catch_up(self: &Arc<Self>, caller: &Caller) -> Option<Arc<Catalogue>> {
        let opened = self.child.initialized()?;
        if opened.capabilities.pointer("/tools/listChanged").is_some_and(|announces| announces == true) {
            // The answer, or the refusal, comes behind all that the server wrote before, its announcements included.
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
