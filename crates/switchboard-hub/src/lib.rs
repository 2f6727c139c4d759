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
pub use audit::{Audit, BadEntry, ChainBreak, Entry, Fault, Hash, Head};
pub use breakers::{Resumed, Stopped};
pub use claims::{CLAIM_LEASE, ClaimAct, ClaimAnswer, ClaimAsk, LONGEST_LEASE, TaskClaim};
pub use config::HubConfig;
pub use directory::{HUB_NAME, Peer, Registration, Resident};
pub use error::HubError;
pub use events::HubEvent;
pub use extent::{Extent, NEWEST};
pub use hub::{Changes, Hold, Hub, Notes, Queued, Selection, View};
pub use link::{Brought, LINK, Outgoing, Passage, Verdict, Word};
pub use lost::LostDeliveries;
pub use maintenance::{Aged, DamagedRow, Health};
pub use mark::fresh_mark;
pub use notice::is_notice;
pub use outbox::{Handoff, Outbound, WAITS_FOR_DISK};
pub use owed::{News, Owed};
pub use reads::{Mail, MailboxQuery, Page, Part, Waiting};
pub use reservations::{RESERVATION_LEASE, Reservation, Reserve};
pub use showing::Showing;
pub use store::adopt::{ForeignDatabase, ForeignSender};
pub use store::binding::HubKey;
pub use store::chain::BreakReason;
pub use store::recover::DatabaseState;
pub use store::rows::Stored;
pub use submit::{Accepted, Draft, Passed, is_key_scope};
pub use work_tree::{WorkTree, WorkTreeError};
