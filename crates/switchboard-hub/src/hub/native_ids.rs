//! Native ids: the ids that messages have in the protocols of the doors.

use std::collections::HashSet;

use jiff::Timestamp;
use switchboard_core::{Door, MessageId, NativeId};

use super::Hub;
use crate::error::HubError;
use crate::journal::reads;
use crate::journal::submit;

/// Finds and binds the ids that messages have in the protocols of the doors.
#[derive(Clone, Copy)]
pub struct NativeIds<'h> {
    pub(super) hub: &'h Hub,
}

impl NativeIds<'_> {
    /// Finds messages by native id, in one protocol or (`None`) in any: scope and message, newest first.
    pub async fn find(self, door: Option<Door>, id: &str) -> Result<Vec<(String, MessageId)>, HubError> {
        let id = id.to_owned();
        self.hub.read(move |db| reads::find_by_native(db, door, &id)).await
    }

    /// Returns all native ids of a protocol within a scope.
    pub async fn in_scope(self, door: Door, scope: &str) -> Result<HashSet<String>, HubError> {
        let scope = scope.to_owned();
        self.hub.read(move |db| reads::native_ids(db, door, &scope)).await
    }

    /// Returns the scopes in which a protocol has used native ids.
    pub async fn scopes(self, door: Door) -> Result<Vec<String>, HubError> {
        self.hub.read(move |db| reads::scopes(db, door)).await
    }

    /// Returns the native id of a message within a scope of a protocol that it arrived or left by.
    pub async fn of_message(
        self,
        door: Door,
        scope: &str,
        id: MessageId,
    ) -> Result<Option<String>, HubError> {
        let scope = scope.to_owned();
        self.hub.read(move |db| reads::native_id_in(db, door, &scope, id)).await
    }

    /// Lists messages that a door accepted before a moment and that have no native id in its protocol yet.
    pub async fn messages_without(self, door: Door, before: Timestamp) -> Result<Vec<MessageId>, HubError> {
        self.hub.read(move |db| reads::without_native_id(db, door, before)).await
    }

    /// Binds a further native id to a message, so that replies to that id find it. False if the id is in use,
    /// be it for this message.
    ///
    /// Does not wait for the disk: after a power failure, the door's own files tell the id again.
    pub async fn bind(self, id: MessageId, native: NativeId) -> Result<bool, HubError> {
        let naming =
            self.hub.inner.writer.queue_repeatable(move |tx| submit::bind_native_id(tx, id, &native));
        let answer = naming.await?.result().await;
        self.hub.note_damage(&answer);
        answer
    }
}
