//! File events, as hints that it is worth looking.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use switchboard_hub::files::is_temp;
use tokio::sync::Notify;

/// How long to gather events before looking: one message makes several.
const GATHER: Duration = Duration::from_millis(2);

/// Rings on whatever happens below a folder; where no events come, the clock has to do.
pub(crate) struct Hints {
    rings: Arc<Notify>,
    _watcher: Option<notify::RecommendedWatcher>,
}

impl Hints {
    pub(crate) fn watch(folder: &Path) -> Self {
        let rings = Arc::new(Notify::new());
        let ring = rings.clone();
        let hear = move |event: notify::Result<notify::Event>| {
            // An overflow and a fault are hints like any other: the listing is the truth.
            if event.map_or(true, |event| is_hint(&event)) {
                ring.notify_one();
            }
        };
        let settings = notify::Config::default().with_follow_symlinks(false);
        let watcher = notify::RecommendedWatcher::new(hear, settings)
            .and_then(|mut watcher| watcher.watch(folder, RecursiveMode::Recursive).map(|()| watcher))
            .inspect_err(
                |error| tracing::warn!(error = %error, "no file events; looking by the clock alone"),
            );
        Self { rings, _watcher: watcher.ok() }
    }

    /// Returns when something happened, or after `pause`, give or take a tenth: many that share a mount must
    /// not all look at once.
    pub(crate) async fn next(&self, pause: Duration) {
        let pause = pause.mul_f64(0.9 + 0.2 * fastrand::f64());
        if tokio::time::timeout(pause, self.rings.notified()).await.is_ok() {
            tokio::time::sleep(GATHER).await;
        }
    }
}

/// Our own reading makes events too, and so do files that are still being written under another name.
fn is_hint(event: &notify::Event) -> bool {
    let is_temp =
        |path: &std::path::PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_temp);
    let only_temps = !event.paths.is_empty() && event.paths.iter().all(is_temp);
    event.need_rescan() || (!event.kind.is_access() && !only_temps)
}
