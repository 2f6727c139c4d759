//! Files that tests put in place the way other programs do.

use std::path::Path;

/// Writes a file and the folders above it.
#[expect(clippy::disallowed_methods, reason = "a test plays the other program")]
pub(crate) fn write(path: &Path, text: &str) {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).unwrap();
    }
    std::fs::write(path, text).unwrap();
}
