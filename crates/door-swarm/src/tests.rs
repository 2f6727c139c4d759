//! The door as a whole, over real TLS.

mod certificates;
mod clocks;
mod github;
mod hostile;
mod identities;
mod joins;
mod life;
mod messages;
mod mutations;
mod peers;
mod rig;
mod wake;
