//! Redaction of values that differ between runs: ids become numbers, times become placeholders.

use std::collections::HashMap;

use regex::{Captures, Regex};

/// Redacts ids, times, paths and process ids.
///
/// The same id gets the same number for the lifetime of the redactor.
pub(crate) struct Redactor {
    patterns: Vec<(Regex, &'static str, bool)>,
    numbers: HashMap<String, String>,
    counts: HashMap<&'static str, usize>,
}

impl Redactor {
    /// Creates a redactor that also replaces `words`.
    ///
    /// Each word is a text specific to this run, such as the path of its folder, with its replacement.
    pub(crate) fn new(words: &[(&str, &'static str)]) -> Self {
        let mut patterns: Vec<(Regex, &'static str, bool)> = words
            .iter()
            .map(|(word, name)| (Regex::new(&regex::escape(word)).unwrap(), *name, false))
            .collect();
        for (pattern, name, is_numbered) in [
            (r"msg_[0-9]{13}_[0-9a-z]{15}", "msg", true),
            (r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "id", true),
            (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z", "time", false),
            (r"process [0-9]+ on [^ \n]+", "process [pid] on [host]", false),
            (r#""pid":[0-9]+"#, r#""pid":[pid]"#, false),
            (r"127\.0\.0\.1:[0-9]+", "127.0.0.1:[port]", false),
            (r#""port":[0-9]+"#, r#""port":[port]"#, false),
            (r"(hub\.db\.damaged\.|hub\.db\.orphan\.|conflict\.)[0-9a-f]{8}", "aside", false),
        ] {
            patterns.push((Regex::new(pattern).unwrap(), name, is_numbered));
        }
        Self { patterns, numbers: HashMap::new(), counts: HashMap::new() }
    }

    /// Returns the text with everything redacted that is specific to this run.
    pub(crate) fn redact(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for (pattern, name, is_numbered) in &self.patterns {
            let (numbers, counts) = (&mut self.numbers, &mut self.counts);
            let replaced = pattern.replace_all(&text, |found: &Captures<'_>| match (is_numbered, *name) {
                (true, _) => numbers
                    .entry(found[0].to_owned())
                    .or_insert_with(|| {
                        let count = counts.entry(name).or_default();
                        *count += 1;
                        format!("[{name}-{count}]")
                    })
                    .clone(),
                (false, "aside") => format!("{}[mark]", &found[1]),
                (false, name) if name.contains('[') => name.to_owned(),
                (false, name) => format!("[{name}]"),
            });
            text = replaced.into_owned();
        }
        text
    }
}
