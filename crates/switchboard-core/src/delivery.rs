//! One message on one route.

use std::fmt;

use jiff::Timestamp;

use crate::{AgentId, MessageId, Route};

/// Prefix of the note of an acknowledgement whose reader cannot answer, for example a watcher whose program failed. The reason
/// follows it.
pub const NO_ANSWER: &str = "no answer: ";

/// The number of a delivery in its hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub i64);

/// One message × one route, and how far it got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Its number.
    pub id: DeliveryId,
    /// What is delivered.
    pub message: MessageId,
    /// To whom.
    pub agent: AgentId,
    /// By which way.
    pub route: Route,
    /// How far it got.
    pub state: DeliveryState,
    /// How many attempts were made.
    pub attempts: u32,
    /// Why it did not get further, where that is known.
    pub note: Option<String>,
    /// When it reached each state.
    pub milestones: Milestones,
}

/// How far a delivery got.
///
/// queued → in flight → delivered → seen → acknowledged; or retrying, refused, expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// Waits for its route.
    Queued,
    /// A door is at it.
    InFlight,
    /// The far side has it: the file is in the mailbox, the session took it, the peer answered.
    Delivered,
    /// The recipient was shown it.
    Seen,
    /// The recipient said that it is done with it.
    Acknowledged,
    /// The far side, or a rule of the hub, said no. Final.
    Refused,
    /// An attempt failed and a retry is due: shown as `retrying`, since nothing is decided yet.
    Failed {
        /// When the next attempt is due.
        retry_at: Timestamp,
    },
    /// It was not taken before it lost its use. Final.
    Expired,
}

/// When a delivery reached each of its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Milestones {
    /// Accepted and waiting.
    pub queued: Option<Timestamp>,
    /// First handed to a door.
    pub in_flight: Option<Timestamp>,
    /// Taken by the far side.
    pub delivered: Option<Timestamp>,
    /// Shown to the recipient.
    pub seen: Option<Timestamp>,
    /// Acknowledged by the recipient.
    pub acknowledged: Option<Timestamp>,
    /// Refused or expired.
    pub ended: Option<Timestamp>,
}

impl Delivery {
    /// Why the recipient is done with the message and does not answer it, where it says so.
    pub fn no_answer_reason(&self) -> Option<&str> {
        self.note.as_deref().filter(|_| self.state == DeliveryState::Acknowledged)?.strip_prefix(NO_ANSWER)
    }
}

impl DeliveryState {
    /// The word for it, everywhere the same.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::InFlight => "in_flight",
            Self::Delivered => "delivered",
            Self::Seen => "seen",
            Self::Acknowledged => "acknowledged",
            Self::Refused => "refused",
            Self::Failed { .. } => "retrying",
            Self::Expired => "expired",
        }
    }

    /// Whether nothing can follow any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Refused | Self::Expired)
    }

    /// Whether the recipient has it and has not said that it is done with it.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Delivered | Self::Seen)
    }

    /// Whether the far side has not got it yet, but still may.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::InFlight | Self::Failed { .. })
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
