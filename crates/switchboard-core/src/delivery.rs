//! Deliveries: one message on one route, and its state.

use std::fmt;

use jiff::Timestamp;

use crate::{AgentId, MessageId, Route};

/// Prefix of the note on a message that was acknowledged without an answer, for example by a watcher whose program
/// failed. The reason follows.
pub const NO_ANSWER: &str = "no answer: ";

/// Number of a delivery, unique within its hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub i64);

/// One message on one route to one recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the delivery.
    pub id: DeliveryId,
    /// The message.
    pub message: MessageId,
    /// The recipient.
    pub agent: AgentId,
    /// The route.
    pub route: Route,
    /// The current state.
    pub state: DeliveryState,
    /// Number of attempts so far.
    pub attempts: u32,
    /// Reason of the last failure, refusal or missing answer, where known.
    pub note: Option<String>,
    /// When the delivery reached each state.
    pub milestones: Milestones,
}

/// State of a delivery: queued → in flight → delivered → seen → acknowledged; or retrying, refused, expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// Waiting for a door to lease it.
    Queued,
    /// Leased to a door that is delivering it.
    InFlight,
    /// The receiving side has it: the file is in the mailbox, the session accepted it, the peer answered.
    Delivered,
    /// The recipient was shown it.
    Seen,
    /// The recipient acknowledged it: it is done with the message.
    Acknowledged,
    /// The receiving side or a rule of the hub refused it. Final.
    Refused,
    /// An attempt failed and a retry is scheduled; shown as `retrying`, because the outcome is still open.
    Failed {
        /// When the next attempt is due.
        retry_at: Timestamp,
    },
    /// Not delivered before the message expired. Final.
    Expired,
}

/// When a delivery reached each of its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Milestones {
    /// Accepted and waiting.
    pub queued: Option<Timestamp>,
    /// First leased to a door.
    pub in_flight: Option<Timestamp>,
    /// Accepted by the receiving side.
    pub delivered: Option<Timestamp>,
    /// Shown to the recipient.
    pub seen: Option<Timestamp>,
    /// Acknowledged by the recipient.
    pub acknowledged: Option<Timestamp>,
    /// Refused or expired.
    pub ended: Option<Timestamp>,
}

impl Delivery {
    /// Returns the reason why the recipient acknowledged the message without an answer, if it gave one.
    pub fn no_answer_reason(&self) -> Option<&str> {
        self.note.as_deref().filter(|_| self.state == DeliveryState::Acknowledged)?.strip_prefix(NO_ANSWER)
    }
}

impl DeliveryState {
    /// Returns the name of the state, as it stands in every output.
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

    /// True if the state cannot change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Refused | Self::Expired)
    }

    /// True if the message was delivered and not yet acknowledged.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Delivered | Self::Seen)
    }

    /// True if the message is not delivered yet but still can be.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::InFlight | Self::Failed { .. })
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
