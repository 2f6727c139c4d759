//! Delivery: the outbox, the relay to other hubs, notices, reminders and display leases.

pub(crate) mod display_lease;
pub(crate) mod missing_deliveries;
pub(crate) mod notice;
pub(crate) mod outbox;
pub(crate) mod relay;
pub(crate) mod remote_receipts;
pub(crate) mod unread_reminders;
