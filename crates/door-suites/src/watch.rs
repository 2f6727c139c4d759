//! Watcher that reloads the suites when settings or children change.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use switchboard_core::sanitize_description;
use switchboard_sys::debounce::Debounce;
use switchboard_sys::file_watcher::{Depth, FileWatcher};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::redact::{Secrets, redact};
use crate::suites::Suites;

/// Name of the workspace folder; `CHILDREN` is the name of the folder of children inside.
const FOLDER: &str = ".switchboard";
const CHILDREN: &str = "mcps";
/// Poll interval for folders that cannot be watched, and for files matched by other globs.
const RESCAN: Duration = Duration::from_secs(30);
/// Poll interval for the folder of children while it does not exist.
///
/// Watching the parent folder instead would cause a wake-up for every message, because messages are written there.
const DIR_POLL: Duration = Duration::from_secs(2);
/// Delay of the first scan, because a client that starts Switchboard first waits for its tool list.
const START_DELAY: Duration = Duration::from_millis(500);
/// Interval between two flushes of the usage counters.
const FLUSH: Duration = Duration::from_mins(1);

/// Reloads the suites after changes, debounced, until `stop` fires.
///
/// Watches the settings, the children's files and descriptions, and the trust decisions. `load` reads the settings; if
/// it returns `None`, nothing is reloaded.
pub async fn watch(suites: Suites, load: impl Fn() -> Option<Config> + Send, stop: CancellationToken) {
    let changes = Arc::new(Notify::new());
    tokio::select! {
        () = stop.cancelled() => return,
        () = tokio::time::sleep(START_DELAY) => {}
    }
    let children = suites.inner.shared.paths.workspace.join(FOLDER).join(CHILDREN);
    let signal = changes.clone();
    let mut watcher = FileWatcher::new(move |_| signal.notify_one())
        .inspect_err(|error| tracing::warn!(%error, "no file events; polling only"))
        .ok();
    watch_folders(&suites, watcher.as_mut());
    // Trigger one reload, since something may have changed before the watcher started.
    changes.notify_one();
    let mut logged = Vec::new();
    log_new_issues(&suites, &mut logged);
    let mut flush = tokio::time::interval_at(tokio::time::Instant::now() + FLUSH, FLUSH);
    loop {
        let is_relevant = tokio::select! {
            () = stop.cancelled() => return,
            () = changes.notified() => true,
            () = wait_for_dir(&children), if !children.is_dir() => true,
            () = tokio::time::sleep(RESCAN) => false,
            _ = flush.tick() => {
                suites.flush().await;
                continue;
            }
        };
        if is_relevant {
            Debounce::SETTINGS.wait().await;
        }
        if let Some(config) = load() {
            suites.reload(config).await;
            log_new_issues(&suites, &mut logged);
        }
        // Watch again, since folders may have been created or removed.
        watch_folders(&suites, watcher.as_mut());
    }
}

/// Logs the issues of children and settings that were not logged before. An issue is logged again if it reappears.
fn log_new_issues(suites: &Suites, logged: &mut Vec<String>) {
    let issues: Vec<String> = suites
        .issues()
        .into_iter()
        .map(|problem| {
            redact(&format!("{}: {}", problem.file.display(), problem.message), &Secrets::default())
        })
        .collect();
    for problem in issues.iter().filter(|problem| !logged.contains(problem)) {
        tracing::warn!("{}", sanitize_description(problem).text);
    }
    *logged = issues;
}

/// Polls until the folder exists.
async fn wait_for_dir(folder: &Path) {
    while !folder.is_dir() {
        tokio::time::sleep(DIR_POLL).await;
    }
}

/// Watches the folders that currently exist; all others are polled.
fn watch_folders(suites: &Suites, watcher: Option<&mut FileWatcher>) {
    let Some(watcher) = watcher else { return };
    let paths = &suites.inner.shared.paths;
    let wanted = [
        (paths.workspace.clone(), Depth::Folder),
        (paths.workspace.join(FOLDER).join(CHILDREN), Depth::Tree),
        (paths.config.clone(), Depth::Folder),
    ];
    for (path, error) in watcher.follow(wanted) {
        tracing::debug!(path = %path.display(), %error, "not watched; polled");
    }
}
