//! Owners with a hub each, in processes of their own, over real TLS.

mod acme;
mod agents;
mod hooks;
mod keys;
mod life;
mod master;
mod owner;
mod proxy;
mod verbs;
