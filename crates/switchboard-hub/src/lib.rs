//! The running core of Switchboard: journal, directory, outbox, presence, events.
//!
//! [`Hub`] is a cheap handle on all of it. A message enters only through [`Hub::submit`], which answers
//! once the message is on disk, and leaves only through the [`Outbound`] of a door. Files, processes and the
//! clock are those of `switchboard-sys`.
//!
//! It knows no protocol: what a mailbox, a channel or a peer looks like is a door's business.

mod activity;
mod audit;
mod bell;
mod breakers;
mod claims;
mod config;
mod directory;
mod error;
mod events;
mod extent;
mod hub;
mod link;
mod lost;
mod maintenance;
mod mark;
mod mend;
mod notice;
mod outbox;
mod owed;
mod presence;
mod reads;
mod reservations;
mod showing;
mod store;
mod submit;
#[cfg(test)]
mod test_hub;
mod unseen;
mod work_tree;

pub use activity::Activity;
pub use audit::{Audit, AuditEntry, BadEntry, ChainBreak, ChainHash, ChainHead, EntryFault};
pub use breakers::{ResumedMessage, StoppedMessage};
pub use claims::{CLAIM_LEASE, ClaimAction, ClaimAnswer, ClaimRequest, LONGEST_LEASE, TaskClaim};
pub use config::HubConfig;
pub use directory::{HUB_NAME, Peer, Registration, RemoteAgent};
pub use error::HubError;
pub use events::HubEvent;
pub use extent::{Extent, NEWEST};
pub use hub::{Changes, DisplayLease, Hub, Notes, Queued, Selection, View};
pub use link::{LINK, OutgoingBatch, OutgoingRelay, ReceiptStatus, RelayedPosts, RemoteReceipt};
pub use lost::MissingDeliveries;
pub use maintenance::{DamagedRow, Health, RetentionCandidate};
pub use mark::fresh_mark;
pub use notice::is_notice;
pub use outbox::{Handoff, Outbound, WAITS_FOR_DISK};
pub use owed::{PendingReceipt, ReceiptUpdate};
pub use reads::{ExpectedFile, MailboxMessage, MailboxQuery, Page, Part};
pub use reservations::{RESERVATION_LEASE, Reservation, ReservationRequest};
pub use showing::DisplayMode;
pub use store::adopt::{ForeignDatabase, ForeignSender};
pub use store::binding::HubKey;
pub use store::chain::BreakReason;
pub use store::recover::DatabaseState;
pub use store::rows::Stored;
pub use submit::{Accepted, Draft, RelayedMessage, is_idempotency_scope};
pub use work_tree::{WorkTree, WorkTreeError};
