//! Messages as another door would hand them in.

use serde_json::Map;
use switchboard_core::{Door, Kind, NativeId};
use switchboard_hub::{Draft, Hub};

pub(crate) fn letter(hub: &Hub, from: &str, to: &str, body: &str) -> Draft {
    let id = hub.next_id();
    Draft {
        id,
        from: from.parse().unwrap(),
        to: to.parse().unwrap(),
        kind: Kind::delegate_task(),
        body: body.into(),
        in_reply_to: None,
        sent_at: hub.now(),
        expires_at: None,
        metadata: Map::new(),
        native: NativeId { door: Door::Workspace, scope: String::new(), id: id.to_string() },
        key: None,
        native_is_id: true,
        verified: true,
        route: None,
        signed: None,
        allow_unregistered: false,
        restored: None,
    }
}
