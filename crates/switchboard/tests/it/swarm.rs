//! Owners with a hub each, in processes of their own, over real TLS.

mod acme;
mod agents;
mod attacks;
mod faults;
mod hooks;
mod interop;
mod keys;
mod life;
mod master;
mod owner;
mod plain;
mod proxy;
mod rules;
mod takeover;
mod verbs;
