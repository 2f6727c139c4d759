//! What the sender is told.

use crate::{Address, Delivery, DeliveryState, MessageId};

/// What became of a message, derived from its deliveries. Never claims more than all of them bear out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The message.
    pub id: MessageId,
    /// Whom it was for.
    pub to: Address,
    /// One entry per recipient.
    pub deliveries: Vec<Delivery>,
}

/// A whole message's standing, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Standing {
    /// At least one recipient has not got it, and still may.
    Pending,
    /// At least one recipient will never get it.
    Failed,
    /// For at least one recipient it lost its use unread.
    Expired,
    /// Every recipient has it.
    Delivered,
    /// Every recipient was shown it.
    Seen,
    /// Every recipient is done with it.
    Acknowledged,
}

impl Receipt {
    /// The receipt that these deliveries of a message bear out.
    pub fn of(id: MessageId, to: Address, deliveries: Vec<Delivery>) -> Self {
        Self { id, to, deliveries }
    }

    /// The least that is true of every delivery. A message without any has nobody to reach: delivered.
    pub fn standing(&self) -> Standing {
        self.deliveries.iter().map(|delivery| standing(delivery.state)).min().unwrap_or(Standing::Delivered)
    }

    /// How many recipients have it.
    pub fn reached(&self) -> usize {
        self.deliveries.iter().filter(|delivery| standing(delivery.state) >= Standing::Delivered).count()
    }
}

fn standing(state: DeliveryState) -> Standing {
    match state {
        DeliveryState::Queued | DeliveryState::InFlight | DeliveryState::Failed { .. } => Standing::Pending,
        DeliveryState::Refused => Standing::Failed,
        DeliveryState::Expired => Standing::Expired,
        DeliveryState::Delivered => Standing::Delivered,
        DeliveryState::Seen => Standing::Seen,
        DeliveryState::Acknowledged => Standing::Acknowledged,
    }
}

#[cfg(test)]
#[path = "receipt_tests.rs"]
mod tests;
