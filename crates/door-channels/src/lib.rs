//! Door 3: channels of message files, watchers that answer by themselves, presence files.
//!
//! Implements the channels protocol ("Multi-Agent OS: Communication Protocols") over a folder that a team
//! shares. [`Channels`] is what the command line works with; [`run`] keeps the channels going: it takes in
//! what others post, delivers what the hub hands over, and runs the watchers. Knows nothing of mailboxes,
//! MCP, workers or peers.

mod archive;
mod brought;
mod channels;
mod config;
mod delivery;
mod error;
mod first_use;
mod intact;
mod intake;
mod leftovers;
mod looked;
mod lookout;
mod names;
mod poster;
mod postponed;
mod presence;
mod reading;
mod run;
#[cfg(test)]
mod test_channels;
mod translate;
mod tree;
mod watch;
pub mod wire;

pub use archive::Archived;
pub use channels::{Channels, Post, Posted};
pub use config::{Config, Detection};
pub use delivery::run_deliveries;
pub use error::ChannelError;
pub use intact::Altered;
pub use intake::Swept;
pub use names::{current_id, id_of_file, is_agent_id};
pub use presence::Sighting;
pub use reading::{ChannelSummary, Follower, Reading};
pub use run::{run, run_channels};
pub use tree::Tree;
pub use watch::{Format, Preset, PromptBy, WatcherConfig, is_mentioned};
