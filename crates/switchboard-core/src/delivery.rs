//! Deliveries: one message on one route, and its state.

use std::fmt;

use jiff::Timestamp;

use crate::{AgentId, MessageId, Route};

/// Prefix of the note on a message that was acknowledged without an answer.
///
/// The reason follows the prefix. An example is a watcher whose program failed.
pub const NO_ANSWER: &str = "no answer: ";

/// Number of a delivery, unique within its hub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryId(pub i64);

/// Delivery of one message on one route to one recipient.
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
    /// Number of delivery attempts so far.
    pub attempts: u32,
    /// Reason of the last failure, refusal or missing answer, if known.
    pub note: Option<String>,
    /// Times at which the delivery reached each state.
    pub milestones: Milestones,
}

/// State of a delivery.
///
/// The usual order is queued → in flight → delivered → seen → acknowledged. Other states are retrying, refused and
/// expired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// The delivery waits for a door to lease it.
    Queued,
    /// The delivery is leased to a door that is delivering the message.
    InFlight,
    /// The receiving side has the message: the file is in the mailbox, the session accepted it, or the peer answered.
    Delivered,
    /// The message was shown to the recipient.
    Seen,
    /// The recipient acknowledged the message and is done with it.
    Acknowledged,
    /// The receiving side or a rule of the hub refused the message. This state is final.
    Refused,
    /// An attempt failed and a retry is scheduled.
    ///
    /// The state is shown as `retrying`, because the outcome is still open.
    Failed {
        /// When the next attempt is due.
        retry_at: Timestamp,
    },
    /// The message expired before it was delivered. This state is final.
    Expired,
}

/// Times at which a delivery reached each of its states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Milestones {
    /// When the message was accepted and queued.
    pub queued: Option<Timestamp>,
    /// When the delivery was first leased to a door.
    pub in_flight: Option<Timestamp>,
    /// When the receiving side accepted the message.
    pub delivered: Option<Timestamp>,
    /// When the message was shown to the recipient.
    pub seen: Option<Timestamp>,
    /// When the recipient acknowledged the message.
    pub acknowledged: Option<Timestamp>,
    /// When the delivery was refused or expired.
    pub ended: Option<Timestamp>,
}

impl Delivery {
    /// Returns the reason why the recipient acknowledged the message without an answer, if a reason was given.
    pub fn no_answer_reason(&self) -> Option<&str> {
        self.note.as_deref().filter(|_| self.state == DeliveryState::Acknowledged)?.strip_prefix(NO_ANSWER)
    }
}

impl DeliveryState {
    /// Returns the name of the state as shown in all output.
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

    /// Returns true if the state cannot change any more.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Refused | Self::Expired)
    }

    /// Returns true if the message was delivered and not yet acknowledged.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Delivered | Self::Seen)
    }

    /// Returns true if the message is not delivered yet but still can be delivered.
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Queued | Self::InFlight | Self::Failed { .. })
    }
}

impl fmt::Display for DeliveryState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
