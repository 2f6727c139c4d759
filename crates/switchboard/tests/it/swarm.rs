//! Owners with one hub each, in their own processes, over real TLS.

mod acme;
mod agents;
mod attacks;
mod faults;
mod hooks;
mod interop;
mod keys;
mod lifecycle;
mod master;
mod owner;
mod plain;
mod proxy;
mod rules;
mod takeover;
mod verbs;
