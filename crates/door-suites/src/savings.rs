//! Token savings of the suites: counters during use, and the report.
//!
//! The tokenizer's vocabulary takes many megabytes, so only the report loads it. During use, only calls and bytes are
//! counted.

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

use crate::arguments::IntrospectQuery;
use crate::config::IntrospectionMode;
use crate::introspect::{Style, introspect};
use crate::paths::SuitePaths;
use crate::suites::Suites;

/// Maximum size of the counter file, which contains a handful of numbers.
const MAX_FILE: u64 = 64 * 1024;
/// Maximum wait for the file's lock before a flush fails. The counters are then retained for the next flush.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// Minimum interval between two writes of the counters.
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// JSON that a call through a suite adds to a direct call, counted as overhead.
const CALL_WRAPPER: &str = r#"{"action":"call","subtool":"","args":}"#;

/// Usage counters, summed over all processes that serve the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageCounts {
    /// Number of tool lists sent to hosts.
    pub lists: u64,
    /// Number of introspections and searches.
    pub introspects: u64,
    /// Total size of the introspection and search results, in bytes.
    pub introspect_bytes: u64,
    /// Number of calls through suites.
    pub calls: u64,
    /// Total size of Switchboard's own text in calls, in bytes.
    pub call_bytes: u64,
    /// Time at which counting started.
    pub since: Option<Timestamp>,
}

/// Counts usage in memory, and flushes the counters to a file.
#[derive(Debug, Default)]
pub(crate) struct UsageCounter {
    dir: Option<Dir>,
    file: String,
    lists: AtomicU64,
    introspects: AtomicU64,
    introspect_bytes: AtomicU64,
    calls: AtomicU64,
    call_bytes: AtomicU64,
    written: Mutex<Option<Instant>>,
}

impl UsageCounter {
    pub(crate) fn new(paths: &SuitePaths) -> Self {
        let dir = paths.create_savings().ok();
        Self { dir, file: format!("{}.json", paths.workspace_hash()), ..Self::default() }
    }

    pub(crate) fn count_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_introspection(&self, bytes: usize) {
        self.introspects.fetch_add(1, Ordering::Relaxed);
        self.introspect_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts a call, with the size of Switchboard's own text in the answer.
    pub(crate) fn count_call(&self, own_bytes: usize) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.call_bytes.fetch_add((own_bytes + CALL_WRAPPER.len()) as u64, Ordering::Relaxed);
    }

    /// Returns true if a write is due, and restarts the interval. Only one caller gets true per interval.
    pub(crate) fn is_due(&self) -> bool {
        let mut written = self.written.lock();
        let is_due = written.is_none_or(|written| written.elapsed() >= WRITE_EVERY);
        if is_due {
            *written = Some(Instant::now());
        }
        is_due
    }

    /// Adds the counters to the file. If the write fails, the counters are retained for the next flush.
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
            tracing::debug!(%error, "cannot write the savings");
            self.lists.fetch_add(counted.lists, Ordering::Relaxed);
            self.introspects.fetch_add(counted.introspects, Ordering::Relaxed);
            self.introspect_bytes.fetch_add(counted.introspect_bytes, Ordering::Relaxed);
            self.calls.fetch_add(counted.calls, Ordering::Relaxed);
            self.call_bytes.fetch_add(counted.call_bytes, Ordering::Relaxed);
        }
    }

    fn add(&self, more: &UsageCounts, now: Timestamp) -> Result<(), LedgerError> {
        let Some(dir) = &self.dir else { return Ok(()) };
        // Lock the file, because every session of the workspace updates it.
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

    /// Reads the file; returns zeros if the file is missing or damaged.
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

/// Token costs and savings of the suites, in tokens of the `o200k` vocabulary.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SavingsReport {
    /// Token costs of each child.
    pub children: Vec<ChildSavings>,
    /// Children that are not counted because they have no cached catalogue. `warm` fetches the missing catalogues.
    pub unknown: Vec<String>,
    /// Tokens of the tool list without suites.
    pub flat: usize,
    /// Tokens of the tool list with suites for the same children, including the search tool.
    pub suites: usize,
    /// Tokens of one introspection of every suite.
    pub introspect_all: usize,
    /// Tokens of a typical use: one tool list, one introspection of the largest suite, and one call.
    pub typical: usize,
    /// Percentage of `flat` that `typical` saves; `None` if no child is known.
    pub typical_saved_percent: Option<f64>,
    /// Savings measured in real use.
    pub measured: MeasuredSavings,
}

/// Token costs of one child.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChildSavings {
    /// Name of the child.
    pub name: String,
    /// Number of offered tools.
    pub tools: usize,
    /// Tokens of the child's tool list without a suite.
    pub flat: usize,
    /// Tokens of the child's suite tool.
    pub suite: usize,
    /// Tokens of one introspection of the child.
    pub introspect: usize,
}

/// Savings measured in real use.
///
/// Tool lists are counted at today's token cost. Answers are counted in bytes and converted at today's ratio of bytes
/// to tokens in introspections.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeasuredSavings {
    /// The usage counters on which the measurement is based.
    pub counted: UsageCounts,
    /// Tokens that flat lists would have cost.
    pub flat: u64,
    /// Tokens that were used with suites.
    pub used: u64,
    /// Difference of `flat` and `used`. Negative if tools were introspected too often.
    pub saved: i64,
}

impl Suites {
    /// Reports token costs and savings. Loads the tokenizer, but starts no child.
    pub fn savings(&self) -> SavingsReport {
        let (table, top) = (self.table(), self.tool_index());
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
            let own = top.tools.iter().find(|tool| has_name(tool, &suite.rules.tool_name));
            shown_bytes += shown.len();
            children.push(ChildSavings {
                name: suite.spec.name.clone(),
                tools: offered.len(),
                flat: count_tokens(&flat_text),
                suite: own.map_or(0, |tool| count_tokens(tool.get())),
                introspect: count_tokens(&shown),
            });
            flat_texts.extend(raws.iter().map(|raw| raw.get().to_owned()));
        }
        let flat = if children.is_empty() { 0 } else { count_tokens(&format!("[{}]", flat_texts.join(","))) };
        // Unknown children are excluded from both lists, so that the lists are comparable.
        let unknown_tools = table.suites.iter().filter(|suite| unknown.contains(&suite.spec.name));
        let unknown_tools: Vec<&str> = unknown_tools.map(|suite| suite.rules.tool_name.as_str()).collect();
        let listed = top.tools.iter().filter(|tool| !unknown_tools.iter().any(|name| has_name(tool, name)));
        let suites = count_tokens(&serde_json::to_string(&listed.collect::<Vec<_>>()).unwrap_or_default());
        let introspect_all = children.iter().map(|child| child.introspect).sum();
        let largest = children.iter().map(|child| child.introspect).max().unwrap_or(0);
        let typical =
            suites + largest + count_tokens(r#"{"action":"introspect"}"#) + count_tokens(CALL_WRAPPER);
        let typical_saved_percent = percent_saved(typical, flat);
        let counted = self.inner.usage.read();
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

/// Renders all pages of a suite's introspection in summary mode.
fn all_pages(offered: &[crate::introspect::OfferedTool<'_>], style: Style) -> String {
    let style = Style { mode: IntrospectionMode::Summary, ..style };
    let pages = offered
        .chunks(50)
        .map(|page| introspect(page, &IntrospectQuery::default(), style, None).unwrap_or_default());
    pages.collect::<Vec<_>>().join("\n")
}

fn has_name(tool: &RawValue, name: &str) -> bool {
    switchboard_core::json::RawObject::parse(tool)
        .and_then(|object| object.text("name"))
        .is_some_and(|own| own == name)
}

#[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
fn percent_saved(used: usize, flat: usize) -> Option<f64> {
    (flat > 0).then(|| ((1.0 - used as f64 / flat as f64) * 1000.0).round() / 10.0)
}

/// Counts the tokens of a text. Estimates the count if the tokenizer is not available.
fn count_tokens(text: &str) -> usize {
    static ENCODING: OnceLock<Option<&'static CoreBpe>> = OnceLock::new();
    let encoding = ENCODING.get_or_init(|| tiktoken::get_encoding("o200k_base"));
    encoding.map_or(text.len() / 4, |encoding| encoding.count(text))
}
