//! Files that tests write as other programs would.

use std::path::Path;

/// Writes a file and its parent folders.
#[expect(clippy::disallowed_methods, reason = "a test plays the other program")]
pub(crate) fn write(path: &Path, text: &str) {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).unwrap();
    }
    std::fs::write(path, text).unwrap();
}
