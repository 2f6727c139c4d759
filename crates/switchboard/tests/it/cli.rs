//! Exit code, stdout and stderr of each verb.

mod ack;
mod agents;
mod audit;
mod claim;
mod completions;
mod config;
mod doctor;
mod inbox;
mod init;
mod receipt;
mod reserve;
mod resume;
mod route;
mod search;
mod send;
mod serve;
mod tail;
mod team;
mod thread;
mod usage;
mod wait;
mod workflow;
mod workspace_lookup;
