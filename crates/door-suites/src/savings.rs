//! What the suites save: what is counted while they are used, and what that means in tokens.
//!
//! The vocabulary of the tokenizer takes many megabytes, so that nothing here loads it but the report: while
//! suites are used, only numbers and bytes are counted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use switchboard_sys::files::{Dir, FileError};
use switchboard_sys::lock::{DirLock, LockOptions};
use tiktoken::CoreBpe;

use crate::arguments::Question;
use crate::config::IntrospectionMode;
use crate::introspect::{Style, introspect};
use crate::paths::SuitePaths;
use crate::suites::Suites;

/// The file has a handful of numbers.
const MAX_FILE: u64 = 64 * 1024;
/// How long the file may be busy before counting goes on without it.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often what was counted is written down at most, while suites are used.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// What a call through a suite says more than a direct one.
const CALL_WRAPPER: &str = r#"{"action":"call","subtool":"","args":}"#;

/// What was counted, over all processes of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageCounts {
    /// How often a host was given the list of tools.
    pub lists: u64,
    /// How often tools were introspected or searched.
    pub introspects: u64,
    /// The bytes of those answers.
    pub introspect_bytes: u64,
    /// How many calls went through suites.
    pub calls: u64,
    /// The bytes that were said beyond what the children said.
    pub call_bytes: u64,
    /// Since when.
    pub since: Option<Timestamp>,
}

/// Counts while suites are used.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    dir: Option<Dir>,
    file: String,
    lists: AtomicU64,
    introspects: AtomicU64,
    introspect_bytes: AtomicU64,
    calls: AtomicU64,
    call_bytes: AtomicU64,
    written: Mutex<Option<Instant>>,
}

impl Ledger {
    pub(crate) fn new(paths: &SuitePaths) -> Self {
        let dir = paths.create_savings().ok();
        Self { dir, file: format!("{}.json", paths.workspace_hash()), ..Self::default() }
    }

    pub(crate) fn listed(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn introspected(&self, bytes: usize) {
        self.introspects.fetch_add(1, Ordering::Relaxed);
        self.introspect_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a call, with what we said of our own in the answer.
    pub(crate) fn called(&self, own_bytes: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.call_bytes.fetch_add((own_bytes + CALL_WRAPPER.len()) as u64, Ordering::Relaxed);
    }

    /// Whether it is time to write again. Says so once.
    pub(crate) fn is_due(&self) -> bool {
        let mut written = self.written.lock();
        let is_due = written.is_none_or(|written| written.elapsed() >= WRITE_EVERY);
        if is_due {
            *written = Some(Instant::now());
        }
        is_due
    }

    /// Adds what was counted to the file. What could not be written is counted again next time.
    pub(crate) fn flush(&self, now: Timestamp) {
        let counted = UsageCounts {
            lists: self.lists.swap(0, Ordering::Relaxed),
            introspects: self.introspects.swap(0, Ordering::Relaxed),
            introspect_bytes: self.introspect_bytes.swap(0, Ordering::Relaxed),
            calls: self.calls.swap(0, Ordering::Relaxed),
            call_bytes: self.call_bytes.swap(0, Ordering::Relaxed),
            since: None,
        };
        if counted == UsageCounts::default() {
            return;
        }
        if let Err(error) = self.add(&counted, now) {
            tracing::debug!(%error, "what was saved is not written down");
            self.lists.fetch_add(counted.lists, Ordering::Relaxed);
            self.introspects.fetch_add(counted.introspects, Ordering::Relaxed);
            self.introspect_bytes.fetch_add(counted.introspect_bytes, Ordering::Relaxed);
            self.calls.fetch_add(counted.calls, Ordering::Relaxed);
            self.call_bytes.fetch_add(counted.call_bytes, Ordering::Relaxed);
        }
    }

    fn add(&self, more: &UsageCounts, now: Timestamp) -> Result<(), LedgerError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        // Every session of the workspace adds to the same file.
        let _lock =
            DirLock::acquire(dir, &self.file, LockOptions { wait: LOCK_WAIT, ..LockOptions::default() })?;
        let old = self.read();
        let sum = UsageCounts {
            lists: old.lists.saturating_add(more.lists),
            introspects: old.introspects.saturating_add(more.introspects),
            introspect_bytes: old.introspect_bytes.saturating_add(more.introspect_bytes),
            calls: old.calls.saturating_add(more.calls),
            call_bytes: old.call_bytes.saturating_add(more.call_bytes),
            since: old.since.or(Some(now)),
        };
        dir.replace(&self.file, &serde_json::to_vec(&sum).unwrap_or_default(), 0o600)?;
        Ok(())
    }

    /// What the file says; nothing when it is missing or damaged.
    pub(crate) fn read(&self) -> UsageCounts {
        let read = self.dir.as_ref().and_then(|dir| dir.read(&self.file, MAX_FILE).ok().flatten());
        read.and_then(|contents| serde_json::from_slice(&contents.bytes).ok()).unwrap_or_default()
    }
}

#[derive(Debug, thiserror::Error)]
enum LedgerError {
    #[error(transparent)]
    Lock(#[from] switchboard_sys::lock::LockError),
    #[error(transparent)]
    File(#[from] FileError),
}

/// What the suites cost and save, in tokens of o200k.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SavingsReport {
    /// Child by child.
    pub children: Vec<ChildSavings>,
    /// Children whose tools are not known yet and are not counted here; `warm` asks them.
    pub unknown: Vec<String>,
    /// The list of tools without suites.
    pub flat: usize,
    /// The list of tools with the suites of the same children, the search included.
    pub suites: usize,
    /// Introspecting every suite.
    pub introspect_all: usize,
    /// One list, one introspection of the largest suite and one call.
    pub typical: usize,
    /// How much of the flat list that saves, in percent; nothing while no child is known.
    pub typical_saved_percent: Option<f64>,
    /// What real use came to.
    pub measured: MeasuredSavings,
}

/// What one child costs, in tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChildSavings {
    /// Its name.
    pub name: String,
    /// How many tools it offers.
    pub tools: usize,
    /// Its list of tools.
    pub flat: usize,
    /// Its suite's tool.
    pub suite: usize,
    /// Introspecting it.
    pub introspect: usize,
}

/// What real use came to. Lists are counted at what they cost today; answers by their bytes, at the bytes per token
/// that the same kind of text has today.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredSavings {
    /// What was counted.
    pub counted: UsageCounts,
    /// The tokens that flat lists would have cost.
    pub flat: u64,
    /// The tokens that were used instead.
    pub used: u64,
    /// The difference, which is negative when everything was introspected again and again.
    pub saved: i64,
}

impl Suites {
    /// Counts what the suites cost and save. Loads the tokenizer; starts no child.
    pub fn savings(&self) -> SavingsReport {
        let (table, top) = (self.table(), self.top());
        let (mut children, mut unknown) = (Vec::new(), Vec::new());
        let (mut flat_texts, mut shown_bytes) = (Vec::new(), 0);
        for suite in table.suites.iter().filter(|suite| !suite.is_flat()) {
            let Some(catalogue) = suite.cached() else {
                unknown.push(suite.spec.name.clone());
                continue;
            };
            let offered = suite.offered(&catalogue);
            let raws: Vec<&RawValue> = offered.iter().map(|offered| &*offered.tool.raw).collect();
            let flat_text = serde_json::to_string(&raws).unwrap_or_default();
            let shown = all_pages(&offered, suite.rules.style);
            let own = top.tools.iter().find(|tool| names(tool, &suite.rules.tool_name));
            shown_bytes += shown.len();
            children.push(ChildSavings {
                name: suite.spec.name.clone(),
                tools: offered.len(),
                flat: tokens(&flat_text),
                suite: own.map_or(0, |tool| tokens(tool.get())),
                introspect: tokens(&shown),
            });
            flat_texts.extend(raws.iter().map(|raw| raw.get().to_owned()));
        }
        let flat = if children.is_empty() { 0 } else { tokens(&format!("[{}]", flat_texts.join(","))) };
        // What is not known is left out on both sides, so that they can be compared.
        let unknown_tools = table.suites.iter().filter(|suite| unknown.contains(&suite.spec.name));
        let unknown_tools: Vec<&str> = unknown_tools.map(|suite| suite.rules.tool_name.as_str()).collect();
        let listed = top.tools.iter().filter(|tool| !unknown_tools.iter().any(|name| names(tool, name)));
        let suites = tokens(&serde_json::to_string(&listed.collect::<Vec<_>>()).unwrap_or_default());
        let introspect_all = children.iter().map(|child| child.introspect).sum();
        let largest = children.iter().map(|child| child.introspect).max().unwrap_or(0);
        let typical = suites + largest + tokens(r#"{"action":"introspect"}"#) + tokens(CALL_WRAPPER);
        let typical_saved_percent = percent_saved(typical, flat);
        let counted = self.inner.ledger.read();
        let measured = measure(counted, flat, suites, introspect_all, shown_bytes);
        SavingsReport {
            children,
            unknown,
            flat,
            suites,
            introspect_all,
            typical,
            typical_saved_percent,
            measured,
        }
    }
}

fn measure(
    counted: UsageCounts,
    flat: usize,
    suites: usize,
    shown: usize,
    shown_bytes: usize,
) -> MeasuredSavings {
    let as_tokens = |bytes: u64| match shown_bytes as u64 {
        0 => bytes / 4,
        all => bytes.saturating_mul(shown as u64) / all,
    };
    let without = counted.lists.saturating_mul(flat as u64);
    let used = counted.lists.saturating_mul(suites as u64)
        + as_tokens(counted.introspect_bytes)
        + as_tokens(counted.call_bytes);
    let saved = i64::try_from(without).unwrap_or(i64::MAX) - i64::try_from(used).unwrap_or(i64::MAX);
    MeasuredSavings { counted, flat: without, used, saved }
}

/// Everything that introspection shows of a suite in summary mode, page after page.
fn all_pages(offered: &[crate::introspect::Offered<'_>], style: Style) -> String {
    let style = Style { mode: IntrospectionMode::Summary, ..style };
    let pages = offered
        .chunks(50)
        .map(|page| introspect(page, &Question::default(), style, None).unwrap_or_default());
    pages.collect::<Vec<_>>().join("\n")
}

fn names(tool: &RawValue, name: &str) -> bool {
    crate::raw::Object::parse(tool).and_then(|object| object.text("name")).is_some_and(|own| own == name)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn percent_saved(used: usize, flat: usize) -> Option<f64> {
    (flat > 0).then(|| ((1.0 - used as f64 / flat as f64) * 1000.0).round() / 10.0)
}

/// The tokens of a text.
fn tokens(text: &str) -> usize {
    static ENCODING: OnceLock<Option<&'static CoreBpe>> = OnceLock::new();
    let encoding = ENCODING.get_or_init(|| tiktoken::get_encoding("o200k_base"));
    encoding.map_or(text.len() / 4, |encoding| encoding.count(text))
}
