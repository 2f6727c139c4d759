//! What a door remembers, changed in one transaction: read, decide, write.

use switchboard_core::Door;

use super::Hub;
use crate::error::HubError;
use crate::maintenance;
use crate::store::writer::Work;

/// A door's notes, within one transaction of the writer. Nobody else changes them meanwhile.
pub struct Notes<'a, 't> {
    tx: &'a mut Work<'t>,
    door: Door,
}

impl Notes<'_, '_> {
    /// What is noted under a topic and a key.
    pub fn get(&self, topic: &str, key: &str) -> Result<Option<String>, HubError> {
        maintenance::get_note(self.tx.db, self.door, topic, key)
    }

    /// Everything that is noted under a topic, oldest first.
    pub fn all(&self, topic: &str) -> Result<Vec<(String, String)>, HubError> {
        maintenance::notes(self.tx.db, self.door, topic)
    }

    /// Notes something; `None` forgets it.
    pub fn put(&mut self, topic: &str, key: &str, value: Option<&str>) -> Result<(), HubError> {
        maintenance::put_note(self.tx, self.door, topic, key, value)
    }
}

impl Hub {
    /// Reads and changes a door's notes in one transaction, which is on disk when this returns. Where `work` fails,
    /// nothing was changed.
    pub async fn edit_notes<T, F>(&self, door: Door, work: F) -> Result<T, HubError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Notes<'_, '_>) -> Result<T, HubError> + Send + 'static,
    {
        self.write(move |tx| work(&mut Notes { tx, door })).await
    }

    /// One note of a door.
    pub async fn get_note(
        &self,
        door: Door,
        topic: &'static str,
        key: &str,
    ) -> Result<Option<String>, HubError> {
        let found = self.glance(|db| maintenance::get_note(db, door, topic, key));
        if let Some(found) = found {
            return Ok(found);
        }
        let key = key.to_owned();
        self.read(move |db| maintenance::get_note(db, door, topic, &key)).await
    }
}
