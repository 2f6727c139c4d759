//! Native ids: the message ids in the protocols of the doors.

use std::collections::HashSet;

use jiff::Timestamp;
use switchboard_core::{Door, MessageId, NativeId};

use super::Hub;
use crate::error::HubError;
use crate::journal::reads;
use crate::journal::submit;

/// Access to native ids: finds them and binds them to messages.
#[derive(Clone, Copy)]
pub struct NativeIds<'h> {
    pub(super) hub: &'h Hub,
}

impl NativeIds<'_> {
    /// Finds messages by native id in one protocol, or in all with `None`.
    ///
    /// Returns the scope and the message id of each, newest first.
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

    /// Returns the native id of a message within a scope of a protocol.
    ///
    /// The message arrived or left through that protocol.
    pub async fn of_message(
        self,
        door: Door,
        scope: &str,
        id: MessageId,
    ) -> Result<Option<String>, HubError> {
        let scope = scope.to_owned();
        self.hub.read(move |db| reads::native_id_in(db, door, &scope, id)).await
    }

    /// Lists messages that still have no native id in their door's protocol.
    ///
    /// The door accepted them before the given moment.
    pub async fn messages_without(self, door: Door, before: Timestamp) -> Result<Vec<MessageId>, HubError> {
        self.hub.read(move |db| reads::without_native_id(db, door, before)).await
    }

    /// Binds an additional native id to a message, so that replies to it find the message.
    ///
    /// Returns false if the id is already bound, even to the same message. Does not wait for the disk: after a power
    /// failure, the door reads the id from its own files again.
    pub async fn bind(self, id: MessageId, native: NativeId) -> Result<bool, HubError> {
        let naming =
            self.hub.inner.writer.queue_repeatable(move |tx| submit::bind_native_id(tx, id, &native));
        let answer = naming.await?.result().await;
        self.hub.note_damage(&answer);
        answer
    }
}
