//! Accepted messages, and which agents saw them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Mutex;

use super::cast::{MEMBER, PEER, REALM};

/// A message that was accepted, as its sender knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AcceptedMessage {
    /// The hub of its sender.
    pub(super) at: &'static str,
    pub(super) from: String,
    /// The address that the sender used.
    pub(super) to: String,
}

impl AcceptedMessage {
    /// Returns the hub of its recipient, and its sender's name there.
    pub(super) fn destination(&self) -> (&'static str, String) {
        match self.to.split_once('@').map(|(_, realm)| realm) {
            None => (self.at, self.from.clone()),
            // A message of any lab agent into a swarm is sent by the lab's member.
            Some(REALM) if self.at == "lab" => ("peers", format!("{MEMBER}@{REALM}")),
            Some(REALM) => ("lab", format!("{PEER}@{REALM}")),
            Some("office") => ("office", format!("{}@{}", self.from, self.at)),
            Some(_) => ("lab", format!("{}@{}", self.from, self.at)),
        }
    }

    /// True if it is for an agent of another hub.
    pub(super) fn crosses_hubs(&self) -> bool {
        self.to.contains('@')
    }
}

impl fmt::Display for AcceptedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} to {}", self.from, self.at, self.to)
    }
}

/// Record of all agents' messages, written during the run.
#[derive(Default)]
pub(super) struct Ledger {
    said: Mutex<BTreeMap<String, AcceptedMessage>>,
    shown: Mutex<BTreeMap<(String, String), usize>>,
}

impl Ledger {
    /// Records an accepted message. Every text is written once.
    pub(super) fn record_accepted(&self, text: String, accepted: AcceptedMessage) {
        assert!(self.said.lock().unwrap().insert(text, accepted).is_none());
    }

    /// Records that an agent saw a message.
    pub(super) fn record_shown(&self, agent: &str, id: &str) {
        *self.shown.lock().unwrap().entry((agent.to_owned(), id.to_owned())).or_default() += 1;
    }

    pub(super) fn count(&self) -> usize {
        self.said.lock().unwrap().len()
    }

    /// Returns all accepted messages, by text.
    pub(super) fn accepted_messages(&self) -> BTreeMap<String, AcceptedMessage> {
        self.said.lock().unwrap().clone()
    }

    /// Returns how often each message was shown: agent, message, count.
    pub(super) fn shown_messages(&self) -> BTreeMap<(String, String), usize> {
        self.shown.lock().unwrap().clone()
    }
}
