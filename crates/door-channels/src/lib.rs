//! The channels door (door 3): channels of message files, with watchers and presence files.
//!
//! It implements the channels protocol ("Multi-Agent OS: Communication Protocols") over a shared folder. The command
//! line uses [`Channels`]. [`run`] operates the door: it ingests posts of other programs, delivers handoffs of the hub,
//! and runs the watchers. The crate does not depend on mailboxes, MCP, workers or peers.

mod archive;
mod channels;
mod cleanup;
mod config;
mod delivery;
mod error;
mod first_use;
mod folder_stamp;
mod folder_watcher;
mod ids;
mod intake;
mod integrity;
mod postponed;
mod presence;
mod reading;
mod relayed_posts;
mod run;
#[cfg(test)]
mod test_channels;
mod translate;
mod tree;
mod watch;
pub mod wire;
mod writer;

pub use archive::ArchiveSummary;
pub use channels::{Channels, Post, PostedMessage};
pub use config::{Config, Detection};
pub use delivery::run_deliveries;
pub use error::ChannelError;
pub use ids::{current_id, id_of_file, is_agent_id};
pub use intake::ScanSummary;
pub use integrity::Tampering;
pub use presence::PresenceEntry;
pub use reading::{ChannelSummary, Follower, Transcript};
pub use run::{run, run_channels};
pub use tree::Tree;
pub use watch::{OutputFormat, Preset, PromptInput, WatcherConfig, is_mentioned};
