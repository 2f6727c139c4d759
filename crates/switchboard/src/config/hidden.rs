//! Secret values in the settings.

use std::fmt;

use serde::Deserialize;

/// Text that no error and no log shows.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub(super) struct Hidden(String);

impl Hidden {
    /// Returns the secret text itself.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}
