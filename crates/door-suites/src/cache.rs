//! Cache with a time to live (TTL) for the results of read-only tools.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Maximum number of entries in one suite's cache; `MAX_BYTES` is the maximum size. At either limit, the entries that
/// expire first are evicted.
const MAX_ENTRIES: usize = 256;
const MAX_BYTES: usize = 8 * 1024 * 1024;

/// TTL cache for the tool results of one suite.
#[derive(Debug)]
pub(crate) struct ResultCache {
    ttl: Duration,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    results: HashMap<String, (Instant, Box<RawValue>)>,
    bytes: usize,
}

impl ResultCache {
    pub(crate) fn new(ttl: Duration) -> Self {
        Self { ttl, entries: Mutex::default() }
    }

    /// Builds a cache key. Equal arguments have equal keys, because object members are sorted.
    pub(crate) fn key(tool: &str, arguments: &Value) -> String {
        format!("{tool}\n{arguments}")
    }

    /// Returns a cached result that has not expired.
    pub(crate) fn get(&self, key: &str) -> Option<Box<RawValue>> {
        let entries = self.entries.lock();
        entries.results.get(key).filter(|(ends, _)| *ends > Instant::now()).map(|(_, result)| result.clone())
    }

    /// Caches a result, unless the entry would take more than an eighth of `MAX_BYTES`.
    pub(crate) fn insert(&self, key: String, result: &RawValue) {
        let size = key.len() + result.get().len();
        if size > MAX_BYTES / 8 {
            return;
        }
        let mut entries = self.entries.lock();
        entries.remove_entry(&key);
        let now = Instant::now();
        while entries.results.len() >= MAX_ENTRIES || entries.bytes + size > MAX_BYTES {
            let Some(first) =
                entries.results.iter().min_by_key(|(_, (ends, _))| *ends).map(|(key, _)| key.clone())
            else {
                break;
            };
            entries.remove_entry(&first);
        }
        entries.bytes += size;
        entries.results.insert(key, (now + self.ttl, result.to_owned()));
    }

    /// Clears the cache. Called after a tool that may have changed something.
    pub(crate) fn clear(&self) {
        *self.entries.lock() = Entries::default();
    }
}

impl Entries {
    fn remove_entry(&mut self, key: &str) {
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
    use switchboard_core::json::to_raw;

    #[tokio::test(start_paused = true)]
    async fn results_expire_and_equal_arguments_share_them() {
        let cache = ResultCache::new(Duration::from_secs(1));
        let one = serde_json::from_str(r#"{"b":1,"a":2}"#).unwrap();
        cache.insert(ResultCache::key("read", &one), &to_raw(&1));
        let same = ResultCache::key("read", &json!({ "a": 2, "b": 1 }));
        assert_eq!(cache.get(&same).unwrap().get(), "1");
        assert!(cache.get(&ResultCache::key("other", &one)).is_none());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cache.get(&same).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn cache_is_bounded_in_entries_and_bytes() {
        let cache = ResultCache::new(Duration::from_mins(1));
        for number in 0..MAX_ENTRIES + 10 {
            tokio::time::advance(Duration::from_millis(1)).await;
            cache.insert(number.to_string(), &to_raw(&number));
        }
        assert!(cache.get("9").is_none() && cache.get("10").is_some());
        cache.insert("huge".to_owned(), &to_raw(&"x".repeat(MAX_BYTES / 8)));
        assert!(cache.get("huge").is_none());
        for number in 0..20 {
            cache.insert(format!("big{number}"), &to_raw(&"x".repeat(MAX_BYTES / 9)));
        }
        assert!(cache.entries.lock().bytes <= MAX_BYTES);
        cache.clear();
        assert_eq!(cache.entries.lock().bytes, 0);
    }
}
