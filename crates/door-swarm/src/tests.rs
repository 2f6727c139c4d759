//! The door as a whole, over real TLS.

mod joins;
mod life;
mod messages;
mod peers;
mod rig;
mod wake;
