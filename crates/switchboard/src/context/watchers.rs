//! Heartbeats of watchers, which are files in the shared folder of the channels.

use std::time::Duration;

use door_channels::PresenceEntry;
use door_workspace::Workspace;
use tokio_util::sync::CancellationToken;

use super::Context;
use crate::failure::Failure;

/// Interval at which the heartbeats of watchers are polled. A silent agent counts as awake for minutes.
pub(crate) const WATCHER_POLL_INTERVAL: Duration = Duration::from_secs(10);

impl Context {
    /// Reads the heartbeat files of watchers. If their folder is not mounted, warns and returns none, because messages
    /// still work.
    pub(crate) async fn presence_entries(
        &self,
        workspace: &Workspace,
    ) -> Result<Vec<PresenceEntry>, Failure> {
        let entries: Result<_, Failure> =
            async { Ok(self.channels(workspace).await?.presence_entries().await?) }.await;
        workspace.hub().agents().observe_watchers(entries.is_ok()).await?;
        match entries {
            Err(failure) if failure.is_unmounted() => {
                tracing::warn!("nothing is known of watchers: {}", failure.message);
                Ok(Vec::new())
            }
            entries => entries,
        }
    }

    /// Loads the heartbeats of watchers into this process. If they cannot be read, the presence of watchers is unknown.
    pub(crate) async fn load_watchers(&self, workspace: &Workspace) -> Result<(), Failure> {
        let result: Result<_, Failure> =
            async { Ok(self.channels(workspace).await?.report_presence().await?) }.await;
        workspace.hub().agents().observe_watchers(result.is_ok()).await?;
        match result {
            Err(failure) if failure.is_unmounted() => {
                tracing::warn!("nothing is known of watchers: {}", failure.message);
            }
            Err(failure) => {
                tracing::debug!("the signs of life of watchers cannot be read: {}", failure.message);
            }
            Ok(()) => {}
        }
        Ok(())
    }

    /// Polls the heartbeats of watchers until `shutdown`.
    pub(crate) async fn follow_watchers(self, workspace: Workspace, shutdown: CancellationToken) {
        let mut channels = None;
        loop {
            if channels.is_none() {
                channels = self.channels(&workspace).await.ok();
            }
            let result = match &channels {
                Some(channels) => channels.report_presence().await.map_err(Failure::from),
                None => Err(Failure::temporary("no_channels", "the channels cannot be opened")),
            };
            let is_readable = result.is_ok();
            let noted = workspace.hub().agents().observe_watchers(is_readable).await.map_err(Failure::from);
            if let Err(failure) = result.and(noted) {
                tracing::debug!("the signs of life of watchers cannot be read: {}", failure.message);
            }
            tokio::select! {
                () = tokio::time::sleep(WATCHER_POLL_INTERVAL) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }
}
