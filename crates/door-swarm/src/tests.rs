//! The door as a whole, over real TLS.

mod faults;
mod life;
mod wake;
