//! Hub: the running core of Switchboard, with journal, delivery, directory, claims, breakers and presence.
//!
//! [`Hub`] is a cheap handle to shared state. A message enters only through [`Hub::submit`], which returns once the
//! message is on disk, and leaves only through the [`Outbound`] of a door. Files, processes and the clock come from
//! `switchboard-sys`.
//!
//! Each subject has a handle that borrows the hub: [`Journal`], [`NativeIds`], [`Mailboxes`], [`Agents`], [`Claims`],
//! [`Breakers`], [`Deliveries`], [`Relay`], [`Notes`], [`Services`] and [`Database`].
//!
//! The crate contains no protocol: the format of a mailbox, a channel or a peer is defined by its door.

mod activity;
mod breakers;
mod change_signal;
mod claims;
mod config;
mod delivery;
mod directory;
mod error;
mod events;
mod hub;
mod journal;
mod mark;
mod presence;
mod store;
#[cfg(test)]
mod test_hub;

pub use activity::Activity;
pub use breakers::{ResumedMessage, StoppedMessage};
pub use claims::reservations::{RESERVATION_LEASE, Reservation, ReservationRequest};
pub use claims::work_tree::{WorkTree, WorkTreeError};
pub use claims::{CLAIM_LEASE, ClaimAction, ClaimAnswer, ClaimRequest, MAX_LEASE_DURATION, TaskClaim};
pub use config::HubConfig;
pub use delivery::display_lease::DisplayMode;
pub use delivery::missing_deliveries::MissingDeliveries;
pub use delivery::notice::is_notice;
pub use delivery::outbox::{Handoff, Outbound, WAITS_FOR_DISK};
pub use delivery::relay::{LINK, OutgoingBatch, OutgoingRelay, ReceiptStatus, RelayedPosts, RemoteReceipt};
pub use delivery::remote_receipts::{PendingReceipt, ReceiptUpdate};
pub use directory::{HUB_NAME, Peer, Registration, RemoteAgent};
pub use error::HubError;
pub use events::HubEvent;
pub use hub::{
    Agents, Breakers, Changes, Claims, Database, Deliveries, DisplayLease, Hub, Journal, Mailboxes,
    NativeIds, Notes, NotesTransaction, Queued, Relay, Selection, Services, View,
};
pub use journal::audit::{Audit, AuditEntry, BadEntry, ChainBreak, ChainHash, ChainHead, EntryFault};
pub use journal::chain::BreakReason;
pub use journal::extent::{Extent, NEWEST};
pub use journal::maintenance::{DamagedRow, Health, RetentionCandidate};
pub use journal::reads::{ExpectedFile, MailboxMessage, MailboxQuery, Page, Part};
pub use journal::submit::{Accepted, Draft, RelayedMessage, is_idempotency_scope};
pub use mark::fresh_mark;
pub use store::adopt::{ForeignDatabase, ForeignSender};
pub use store::binding::HubKey;
pub use store::recover::DatabaseState;
pub use store::rows::Stored;
