//! The running core of Switchboard.
