//! Notes: a door's persistent key-value pairs, edited in one transaction.

use switchboard_core::Door;

use super::Hub;
use crate::error::HubError;
use crate::journal::maintenance;
use crate::store::writer::Transaction;

/// Access to a door's notes within one write transaction. No other process changes them meanwhile.
pub struct NotesTransaction<'a, 't> {
    tx: &'a mut Transaction<'t>,
    door: Door,
}

impl NotesTransaction<'_, '_> {
    /// Returns the value of a note.
    pub fn get(&self, topic: &str, key: &str) -> Result<Option<String>, HubError> {
        maintenance::get_note(self.tx.db, self.door, topic, key)
    }

    /// Lists the notes under a topic, oldest first.
    pub fn all(&self, topic: &str) -> Result<Vec<(String, String)>, HubError> {
        maintenance::notes(self.tx.db, self.door, topic)
    }

    /// Writes a note; `None` deletes it.
    pub fn put(&mut self, topic: &str, key: &str, value: Option<&str>) -> Result<(), HubError> {
        maintenance::put_note(self.tx, self.door, topic, key, value)
    }
}

/// Persistent key-value pairs of one door.
#[derive(Clone, Copy)]
pub struct Notes<'h> {
    pub(super) hub: &'h Hub,
    pub(super) door: Door,
}

impl Notes<'_> {
    /// Returns the value of a note.
    pub async fn get(self, topic: &'static str, key: &str) -> Result<Option<String>, HubError> {
        let door = self.door;
        let found = self.hub.try_read(&|db| maintenance::get_note(db, door, topic, key));
        if let Some(found) = found {
            return Ok(found);
        }
        let key = key.to_owned();
        self.hub.read(move |db| maintenance::get_note(db, door, topic, &key)).await
    }

    /// Lists the notes under a topic, oldest first.
    pub async fn all(self, topic: &'static str) -> Result<Vec<(String, String)>, HubError> {
        let door = self.door;
        self.hub.read(move |db| maintenance::notes(db, door, topic)).await
    }

    /// Writes a persistent note; `None` deletes it.
    pub async fn put(self, topic: &'static str, key: String, value: Option<String>) -> Result<(), HubError> {
        let door = self.door;
        self.hub.write(move |tx| maintenance::put_note(tx, door, topic, &key, value.as_deref())).await
    }

    /// Writes a note without waiting for the disk.
    ///
    /// A power failure may lose the note; a process that misses it determines the value again.
    pub async fn put_unsynced(
        self,
        topic: &'static str,
        key: String,
        value: Option<String>,
    ) -> Result<(), HubError> {
        let door = self.door;
        let note =
            move |tx: &mut Transaction<'_>| maintenance::put_note(tx, door, topic, &key, value.as_deref());
        let answer = self.hub.inner.writer.queue_repeatable(note).await?.result().await;
        self.hub.note_damage(&answer);
        answer
    }

    /// Edits the notes in one transaction, which is on disk when this function returns.
    ///
    /// If `work` fails, its changes are rolled back.
    pub async fn edit<T, F>(self, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut NotesTransaction<'_, '_>) -> Result<T, HubError> + Send + 'static,
    {
        let door = self.door;
        self.hub.write(move |tx| work(&mut NotesTransaction { tx, door })).await
    }
}
