//! Receipts: the delivery status of a message for its sender.

use crate::{Address, Delivery, DeliveryState, MessageId};

/// Receipt: the delivery status of a message, derived from its deliveries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The message.
    pub id: MessageId,
    /// The address.
    pub to: Address,
    /// Deliveries of the message, one per recipient.
    pub deliveries: Vec<Delivery>,
}

/// Overall state of a message across all recipients. Variants are ordered from weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OverallState {
    /// At least one delivery is pending.
    Pending,
    /// At least one delivery was refused.
    Failed,
    /// At least one delivery expired.
    Expired,
    /// Every recipient has the message.
    Delivered,
    /// Every recipient has seen the message.
    Seen,
    /// Every recipient acknowledged the message.
    Acknowledged,
}

impl Receipt {
    /// Returns the receipt for these deliveries of a message.
    pub fn of(id: MessageId, to: Address, deliveries: Vec<Delivery>) -> Self {
        Self { id, to, deliveries }
    }

    /// Returns the weakest state of all deliveries. A message without deliveries counts as `Delivered`.
    pub fn overall_state(&self) -> OverallState {
        self.deliveries
            .iter()
            .map(|delivery| overall_state_of(delivery.state))
            .min()
            .unwrap_or(OverallState::Delivered)
    }

    /// Returns the number of recipients that have the message.
    pub fn reached_count(&self) -> usize {
        self.deliveries
            .iter()
            .filter(|delivery| overall_state_of(delivery.state) >= OverallState::Delivered)
            .count()
    }
}

fn overall_state_of(state: DeliveryState) -> OverallState {
    match state {
        DeliveryState::Queued | DeliveryState::InFlight | DeliveryState::Failed { .. } => {
            OverallState::Pending
        }
        DeliveryState::Refused => OverallState::Failed,
        DeliveryState::Expired => OverallState::Expired,
        DeliveryState::Delivered => OverallState::Delivered,
        DeliveryState::Seen => OverallState::Seen,
        DeliveryState::Acknowledged => OverallState::Acknowledged,
    }
}

#[cfg(test)]
#[path = "receipt_tests.rs"]
mod tests;
