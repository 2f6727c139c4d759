//! Notices that settings or children changed, and takes them up.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::{RecursiveMode, Watcher};
use switchboard_core::sanitize_description;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::redact::{Secrets, redact};
use crate::suites::Suites;

/// The folder of a workspace, and the one in it where children are described.
const FOLDER: &str = ".switchboard";
const CHILDREN: &str = "mcps";
/// Editors write a file in several steps; they are one change.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Folders that cannot be watched, and files that other globs lead to, are looked at by the clock.
const RESCAN: Duration = Duration::from_secs(30);
/// Until there is a folder with children it is looked for this often. Events would tell at once, but those of the
/// folder around it come with every message, and each would wake us.
const APPEARS: Duration = Duration::from_secs(2);
/// A client that starts us waits for its first list of tools; looking for changes can wait until then.
const BEGIN: Duration = Duration::from_millis(500);
/// How often counters are written down.
const FLUSH: Duration = Duration::from_mins(1);

/// Keeps suites up to date until it is told to stop: with the settings, which `load` reads (`None`: they cannot be
/// read now, and those from before stay), with the descriptions of children, and with what is trusted.
pub async fn watch(suites: Suites, load: impl Fn() -> Option<Config> + Send, stop: CancellationToken) {
    let hints = Arc::new(Notify::new());
    tokio::select! {
        () = stop.cancelled() => return,
        () = tokio::time::sleep(BEGIN) => {}
    }
    let children = suites.inner.shared.paths.workspace.join(FOLDER).join(CHILDREN);
    let mut watched = watch_folders(&suites, &hints);
    // Something may have changed before anybody watched.
    hints.notify_one();
    let mut told = Vec::new();
    tell_problems(&suites, &mut told);
    let mut flush = tokio::time::interval_at(tokio::time::Instant::now() + FLUSH, FLUSH);
    loop {
        let is_hint = tokio::select! {
            () = stop.cancelled() => return,
            () = hints.notified() => true,
            () = appears(&children), if !children.is_dir() => true,
            () = tokio::time::sleep(RESCAN) => false,
            _ = flush.tick() => {
                suites.flush().await;
                continue;
            }
        };
        if is_hint {
            tokio::time::sleep(DEBOUNCE).await;
        }
        if let Some(config) = load() {
            suites.reload(config).await;
            tell_problems(&suites, &mut told);
        }
        // Folders may have come or gone.
        watched = watch_folders(&suites, &hints).or(watched);
    }
}

/// Logs what is wrong with children and their settings, each once as long as it lasts.
fn tell_problems(suites: &Suites, told: &mut Vec<String>) {
    let issues: Vec<String> = suites
        .issues()
        .into_iter()
        .map(|problem| {
            redact(&format!("{}: {}", problem.file.display(), problem.message), &Secrets::default())
        })
        .collect();
    for problem in issues.iter().filter(|problem| !told.contains(problem)) {
        tracing::warn!("{}", sanitize_description(problem).text);
    }
    *told = issues;
}

/// Returns once there is such a folder.
async fn appears(folder: &Path) {
    while !folder.is_dir() {
        tokio::time::sleep(APPEARS).await;
    }
}

fn watch_folders(suites: &Suites, hints: &Arc<Notify>) -> Option<notify::RecommendedWatcher> {
    let paths = suites.inner.shared.paths.clone();
    let rings = hints.clone();
    let hint = move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| is_hint(&event)) {
            rings.notify_one();
        }
    };
    // A link among the children could lead anywhere; what lies behind it is none of ours.
    let settings = notify::Config::default().with_follow_symlinks(false);
    let mut watcher = notify::RecommendedWatcher::new(hint, settings)
        .inspect_err(|error| tracing::warn!(%error, "no file events; looking by the clock alone"))
        .ok()?;
    for (path, mode) in [
        (paths.workspace.clone(), RecursiveMode::NonRecursive),
        (paths.workspace.join(FOLDER).join(CHILDREN), RecursiveMode::Recursive),
        (paths.config.clone(), RecursiveMode::NonRecursive),
    ] {
        if let Err(error) = watcher.watch(&path, mode) {
            tracing::debug!(path = %path.display(), %error, "not watched; looked at by the clock");
        }
    }
    Some(watcher)
}

/// Whether an event can mean that something changed for us. Our own reading makes events too, and files are written
/// under another name first.
fn is_hint(event: &notify::Event) -> bool {
    let matters = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !switchboard_sys::files::is_in_the_making(name)
    };
    let concerns_us = event.paths.is_empty() || event.paths.iter().any(matters);
    event.need_rescan() || (!event.kind.is_access() && concerns_us)
}
