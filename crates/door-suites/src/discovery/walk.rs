//! Glob walk over the workspace. The walk is bounded and follows no symbolic links.

use std::collections::BTreeMap;
use std::path::PathBuf;

use globset::{GlobBuilder, GlobMatcher};
use switchboard_core::error_chain;
use switchboard_sys::files::{Dir, FileError, is_temp};

use super::{Discovery, FoundFile};

/// Maximum depth to which `**` descends.
const DEPTH: usize = 8;

/// Maximum number of folders scanned per pattern. A larger number indicates a mistake, and startup must stay fast.
const MOST_FOLDERS: usize = 4096;

/// Folders that `**` skips, because they are large and do not contain the workspace's own content.
const SKIPPED: [&str; 3] = [".git", "node_modules", "target"];

/// A parsed glob pattern, with one part per path component.
pub(super) struct Pattern {
    parts: Vec<Part>,
}

enum Part {
    /// Exactly this name, without wildcards.
    Name(String),
    /// `*`: every name that does not start with a dot.
    Each,
    /// Names that match a glob. The flag is true if names that start with a dot may match.
    Match(GlobMatcher, bool),
    /// `**`: any number of folders.
    Any,
}

impl Pattern {
    /// Parses a pattern. The error describes the invalid part.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(format!("is '{shown}', but must stay inside the workspace"));
        }
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
            parts.push(match part {
                "**" => Part::Any,
                // The most common glob gets its own variant, which avoids the memory of the regular expression engine.
                "*" => Part::Each,
                _ if part.contains(['*', '?', '[', '{', '\\']) => {
                    let glob = GlobBuilder::new(part).literal_separator(true).build();
                    let glob = glob.map_err(|error| format!("is '{shown}': {error}"))?;
                    Part::Match(glob.compile_matcher(), part.starts_with('.'))
                }
                _ if part.contains('\0') => {
                    return Err(format!("is '{shown}', but no file can have that name"));
                }
                _ => Part::Name(part.to_owned()),
            });
        }
        match parts.last() {
            None | Some(Part::Any) => Err(format!("is '{shown}', but must end with the name of a file")),
            Some(_) => Ok(Self { parts }),
        }
    }

    /// Collects all matching files into `files`, keyed by path, and records issues in `found`.
    pub(super) fn find(&self, root: &Dir, files: &mut BTreeMap<PathBuf, FoundFile>, found: &mut Discovery) {
        let mut walk = Walk { files, found, remaining: MOST_FOLDERS };
        walk.descend(root, "", &self.parts, DEPTH);
    }
}

struct Walk<'w> {
    files: &'w mut BTreeMap<PathBuf, FoundFile>,
    found: &'w mut Discovery,
    remaining: usize,
}

impl Walk<'_> {
    fn descend(&mut self, dir: &Dir, relative: &str, parts: &[Part], depth: usize) {
        let Some((part, rest)) = parts.split_first() else { return };
        if self.remaining == 0 {
            return;
        }
        self.remaining -= 1;
        if self.remaining == 0 {
            let message = format!(
                "a pattern of 'discoverGlobs' covers more than {MOST_FOLDERS} folders; write a narrower one"
            );
            return self.found.report_issue(dir.path().to_owned(), None, message);
        }
        match part {
            Part::Name(name) => self.enter(dir, relative, name, rest, true),
            Part::Each => self.enter_all(dir, relative, rest, |name| !name.starts_with('.')),
            Part::Match(glob, dots) => {
                let is_meant = |name: &str| glob.is_match(name) && (*dots || !name.starts_with('.'));
                self.enter_all(dir, relative, rest, is_meant);
            }
            Part::Any => {
                self.descend(dir, relative, rest, depth);
                if depth == 0 {
                    return;
                }
                for name in self.names(dir) {
                    if SKIPPED.contains(&name.as_str()) {
                        continue;
                    }
                    if let Ok(Some(sub)) = dir.subdir(&name) {
                        self.descend(&sub, &join(relative, &name), parts, depth - 1);
                    }
                }
            }
        }
    }

    fn enter_all(&mut self, dir: &Dir, relative: &str, rest: &[Part], is_meant: impl Fn(&str) -> bool) {
        for name in self.names(dir) {
            if is_meant(&name) {
                self.enter(dir, relative, &name, rest, false);
            }
        }
    }

    /// Descends into a folder, or collects the file if the pattern ends here.
    ///
    /// An entry that only matched a wildcard and is not a folder is ignored. A symbolic link is reported as an issue.
    fn enter(&mut self, dir: &Dir, relative: &str, name: &str, rest: &[Part], is_named: bool) {
        let path = dir.path().join(name);
        if rest.is_empty() {
            if matches!(dir.stat(name), Ok(Some(_))) {
                let found_file =
                    FoundFile { folder: dir.clone(), name: name.to_owned(), relative: relative.to_owned() };
                self.files.insert(path, found_file);
            }
            return;
        }
        match dir.subdir(name) {
            Ok(Some(sub)) => self.descend(&sub, &join(relative, name), rest, DEPTH),
            Ok(None) => {}
            Err(FileError::NotADirectory { found: "symbolic link", .. }) => {
                let message = "is a symbolic link, which is not followed; \
                               put the folder itself here, or its path into 'discoverGlobs'";
                self.found.report_issue(path, None, message.to_owned());
            }
            Err(FileError::NotADirectory { .. }) if !is_named => {}
            Err(error) => self.found.report_issue(path, None, error_chain(&error)),
        }
    }

    fn names(&mut self, dir: &Dir) -> Vec<String> {
        match dir.names() {
            Ok(names) => names.into_iter().filter(|name| !is_temp(name)).collect(),
            Err(error) => {
                self.found.report_issue(dir.path().to_owned(), None, error_chain(&error));
                Vec::new()
            }
        }
    }
}

fn join(relative: &str, name: &str) -> String {
    if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") }
}
