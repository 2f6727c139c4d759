//! The door as a whole, over real TLS.

mod approval;
mod certificates;
mod clocks;
mod github;
mod hostile;
mod identities;
mod interrupted;
mod joins;
mod life;
mod messages;
mod mutations;
mod peers;
mod rig;
mod rosters;
mod wake;
