//! The door as a whole, over real TLS.

mod life;
