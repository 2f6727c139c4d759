//! Keeps results of tools that change nothing, for a while.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// The most results that are kept of one suite, and the most bytes. When either is reached, those that end
/// soonest go first.
const MAX_ENTRIES: usize = 256;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The kept results of a suite.
#[derive(Debug)]
pub(crate) struct ResultCache {
    ttl: Duration,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    results: HashMap<String, (Instant, Box<RawValue>)>,
    bytes: usize,
}

impl ResultCache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, kept: Mutex::default() }
    }

    /// What a call is kept under: arguments that mean the same have one key, because members are sorted.
    pub(crate) fn key(tool: &str, arguments: &Value) -> String {
        format!("{tool}\n{arguments}")
    }

    /// A kept result that is not too old.
    pub(crate) fn get(&self, key: &str) -> Option<Box<RawValue>> {
        let kept = self.kept.lock();
        kept.results.get(key).filter(|(ends, _)| *ends > Instant::now()).map(|(_, result)| result.clone())
    }

    /// Keeps a result. What would be an eighth of all room by itself is not kept.
    pub(crate) fn keep(&self, key: String, result: &RawValue) {
        let size = key.len() + result.get().len();
        if size > MAX_BYTES / 8 {
            return;
        }
        let mut kept = self.kept.lock();
        kept.forget(&key);
        let now = Instant::now();
        while kept.results.len() >= MAX_ENTRIES || kept.bytes + size > MAX_BYTES {
            let Some(first) =
                kept.results.iter().min_by_key(|(_, (ends, _))| *ends).map(|(key, _)| key.clone())
            else {
                break;
            };
            kept.forget(&first);
        }
        kept.bytes += size;
        kept.results.insert(key, (now + self.ttl, result.to_owned()));
    }

    /// Forgets everything, after a tool that may have changed something.
    pub(crate) fn clear(&self) {
        *self.kept.lock() = Kept::default();
    }
}

impl Kept {
    fn forget(&mut self, key: &str) {
        if let Some((_, result)) = self.results.remove(key) {
            self.bytes -= key.len() + result.get().len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::{MAX_BYTES, MAX_ENTRIES, ResultCache};
    use crate::raw::raw;

    #[tokio::test(start_paused = true)]
    async fn results_are_kept_for_their_time_under_what_the_arguments_mean() {
        let cache = ResultCache::new(Duration::from_secs(1));
        let one = serde_json::from_str(r#"{"b":1,"a":2}"#).unwrap();
        cache.keep(ResultCache::key("read", &one), &raw(&1));
        let same = ResultCache::key("read", &json!({ "a": 2, "b": 1 }));
        assert_eq!(cache.get(&same).unwrap().get(), "1");
        assert!(cache.get(&ResultCache::key("other", &one)).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get(&same).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_room_is_bounded_in_entries_and_in_bytes() {
        let cache = ResultCache::new(Duration::from_mins(1));
        for number in 0..MAX_ENTRIES + 10 {
            tokio::time::advance(Duration::from_millis(1)).await;
            cache.keep(number.to_string(), &raw(&number));
        }
        assert!(cache.get("9").is_none() && cache.get("10").is_some());
        cache.keep("huge".to_owned(), &raw(&"x".repeat(MAX_BYTES / 8)));
        assert!(cache.get("huge").is_none());
        for number in 0..20 {
            cache.keep(format!("big{number}"), &raw(&"x".repeat(MAX_BYTES / 9)));
        }
        assert!(cache.kept.lock().bytes <= MAX_BYTES);
        cache.clear();
        assert_eq!(cache.kept.lock().bytes, 0);
    }
}
