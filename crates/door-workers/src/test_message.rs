//! Messages from another door.

use switchboard_core::{Door, Kind};
use switchboard_hub::{Draft, Hub};

pub(crate) fn door_message(hub: &Hub, from: &str, to: &str, body: &str) -> Draft {
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    Draft { verified: true, ..hub.draft(Door::Workspace, from, to, Kind::delegate_task(), body) }
}
