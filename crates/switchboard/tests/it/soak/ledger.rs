//! What was said, and what was shown to whom.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use super::cast::{MEMBER, PEER, REALM};

/// A message that its sender was told is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    /// The hub of its sender.
    pub(super) at: &'static str,
    pub(super) from: String,
    /// As the sender wrote it.
    pub(super) to: String,
}

impl Said {
    /// The hub of its reader, and what its sender is called there.
    pub(super) fn there(&self) -> (&'static str, String) {
        match self.to.split_once('@').map(|(_, realm)| realm) {
            None => (self.at, self.from.clone()),
            // Whoever of a hub writes into a swarm, its member there sends it.
            Some(REALM) if self.at == "lab" => ("peers", format!("{MEMBER}@{REALM}")),
            Some(REALM) => ("lab", format!("{PEER}@{REALM}")),
            Some("office") => ("office", format!("{}@{}", self.from, self.at)),
            Some(_) => ("lab", format!("{}@{}", self.from, self.at)),
        }
    }

    /// Whether it is for somebody of another hub.
    pub(super) fn goes_over(&self) -> bool {
        self.to.contains('@')
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} to {}", self.from, self.at, self.to)
    }
}

/// What all agents write into as they go.
#[derive(Default)]
pub(super) struct Ledger {
    said: Mutex<BTreeMap<String, Said>>,
    shown: Mutex<BTreeMap<(String, String), usize>>,
}

impl Ledger {
    /// A message was accepted. Every text is written once.
    pub(super) fn said(&self, text: String, said: Said) {
        assert!(self.said.lock().unwrap().insert(text, said).is_none());
    }

    /// A message was put before an agent.
    pub(super) fn shown(&self, agent: &str, id: &str) {
        *self.shown.lock().unwrap().entry((agent.to_owned(), id.to_owned())).or_default() += 1;
    }

    pub(super) fn count(&self) -> usize {
        self.said.lock().unwrap().len()
    }

    /// Everything that was accepted, by its text.
    pub(super) fn all_said(&self) -> BTreeMap<String, Said> {
        self.said.lock().unwrap().clone()
    }

    /// How often each message was shown: agent, message, count.
    pub(super) fn all_shown(&self) -> BTreeMap<(String, String), usize> {
        self.shown.lock().unwrap().clone()
    }
}
