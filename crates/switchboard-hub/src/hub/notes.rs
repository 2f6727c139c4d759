//! Notes: a door's persistent key-value pairs, edited in one transaction.

use switchboard_core::Door;

use super::Hub;
use crate::error::HubError;
use crate::journal::maintenance;
use crate::store::writer::Transaction;

/// A door's notes within one transaction of the writer. No other process changes them meanwhile.
pub struct Notes<'a, 't> {
    tx: &'a mut Transaction<'t>,
    door: Door,
}

impl Notes<'_, '_> {
    /// Returns a note.
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

impl Hub {
    /// Edits a door's notes in one transaction, which is on disk when this returns. If `work` fails, nothing
    /// has changed.
    pub async fn edit_notes<T, F>(&self, door: Door, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Notes<'_, '_>) -> Result<T, HubError> + Send + 'static,
    {
        self.write(move |tx| work(&mut Notes { tx, door })).await
    }

    /// Returns one note of a door.
    pub async fn get_note(
        &self,
        door: Door,
        topic: &'static str,
        key: &str,
    ) -> Result<Option<String>, HubError> {
        let found = self.try_read(|db| maintenance::get_note(db, door, topic, key));
        if let Some(found) = found {
            return Ok(found);
        }
        let key = key.to_owned();
        self.read(move |db| maintenance::get_note(db, door, topic, &key)).await
    }
}
