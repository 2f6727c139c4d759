//! The running core of Switchboard: journal, directory, outbox, presence, events.
//!
//! [`Hub`] is a cheap handle on all of it. A message enters only through [`Hub::submit`], which answers
//! once the message is on disk, and leaves only through the [`Outbound`] of a door. The crate also holds
//! what every door needs and nobody should write twice: the atomic file writer ([`files`]), the lock
//! that Node programs share with us ([`lock`]) and the process spawner ([`process`]).
//!
//! It knows no protocol: what a mailbox, a channel or a peer looks like is a door's business.

pub mod clock;
pub mod files;
pub mod guard;
pub mod lock;
pub mod owner;
pub mod platform;
pub mod process;

mod bell;
mod config;
mod directory;
mod error;
mod events;
mod hub;
mod link;
mod maintenance;
mod outbox;
mod presence;
mod reads;
mod service;
mod store;
mod submit;
#[cfg(test)]
mod test_hub;

pub use config::HubConfig;
pub use directory::{HUB_NAME, Peer, Registration, Resident};
pub use error::HubError;
pub use events::HubEvent;
pub use hub::{Changes, Hub, Notes};
pub use link::{Outgoing, Passage, Verdict};
pub use maintenance::{DamagedRow, Health};
pub use outbox::{Handoff, Outbound};
pub use reads::{Mail, MailboxQuery, Page, Part, Waiting};
pub use service::Service;
pub use store::recover::DatabaseState;
pub use store::rows::Stored;
pub use submit::{Accepted, Draft, Passed};
