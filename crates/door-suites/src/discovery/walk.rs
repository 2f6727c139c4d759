//! Finding files by a pattern, without following a link or getting lost.

use std::collections::BTreeMap;
use std::path::PathBuf;

use globset::{GlobBuilder, GlobMatcher};
use switchboard_sys::files::{Dir, FileError, is_temp};

use super::{Discovery, Place, chain};

/// How deep `**` goes.
const DEPTH: usize = 8;

/// How many folders one pattern looks into: more than that is a mistake, and a start must stay quick.
const MOST_FOLDERS: usize = 4096;

/// Folders that `**` does not go into: they are large, and what is in them is not the workspace's own.
const SKIPPED: [&str; 3] = [".git", "node_modules", "target"];

/// A pattern, part by part.
pub(super) struct Pattern {
    parts: Vec<Part>,
}

enum Part {
    /// Exactly this name.
    Name(String),
    /// Every name but those that begin with a dot.
    Each,
    /// Names that match.
    Match(GlobMatcher, bool),
    /// Any number of folders.
    Any,
}

impl Pattern {
    /// Reads a pattern, or says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let shown = text.escape_debug();
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(format!("is '{shown}', but has to stay below the workspace"));
        }
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !part.is_empty() && *part != ".") {
            parts.push(match part {
                "**" => Part::Any,
                // The usual one, and not worth a regular expression, whose code would be in memory from then on.
                "*" => Part::Each,
                _ if part.contains(['*', '?', '[', '{', '\\']) => {
                    let glob = GlobBuilder::new(part).literal_separator(true).build();
                    let glob = glob.map_err(|error| format!("is '{shown}': {error}"))?;
                    Part::Match(glob.compile_matcher(), part.starts_with('.'))
                }
                _ if part.contains('\0') => return Err(format!("is '{shown}', but no file has such a name")),
                _ => Part::Name(part.to_owned()),
            });
        }
        match parts.last() {
            None | Some(Part::Any) => Err(format!("is '{shown}', but has to end with the name of a file")),
            Some(_) => Ok(Self { parts }),
        }
    }

    /// Puts every file that matches into `files`, by its path.
    pub(super) fn find(&self, root: &Dir, files: &mut BTreeMap<PathBuf, Place>, found: &mut Discovery) {
        let mut walk = Walk { files, found, left: MOST_FOLDERS };
        walk.go(root, "", &self.parts, DEPTH);
    }
}

struct Walk<'w> {
    files: &'w mut BTreeMap<PathBuf, Place>,
    found: &'w mut Discovery,
    left: usize,
}

impl Walk<'_> {
    fn go(&mut self, dir: &Dir, relative: &str, parts: &[Part], depth: usize) {
        let Some((part, rest)) = parts.split_first() else { return };
        if self.left == 0 {
            return;
        }
        self.left -= 1;
        if self.left == 0 {
            let message = format!(
                "a pattern of 'discoverGlobs' looks into more than {MOST_FOLDERS} folders; write a narrower one"
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
                self.go(dir, relative, rest, depth);
                if depth == 0 {
                    return;
                }
                for name in self.names(dir) {
                    if SKIPPED.contains(&name.as_str()) {
                        continue;
                    }
                    if let Ok(Some(sub)) = dir.subdir(&name) {
                        self.go(&sub, &join(relative, &name), parts, depth - 1);
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

    /// Goes on below a folder, or takes a file. What lies beside the folders that were meant is let be.
    fn enter(&mut self, dir: &Dir, relative: &str, name: &str, rest: &[Part], is_named: bool) {
        let path = dir.path().join(name);
        if rest.is_empty() {
            if matches!(dir.stat(name), Ok(Some(_))) {
                let place =
                    Place { folder: dir.clone(), name: name.to_owned(), relative: relative.to_owned() };
                self.files.insert(path, place);
            }
            return;
        }
        match dir.subdir(name) {
            Ok(Some(sub)) => self.go(&sub, &join(relative, name), rest, DEPTH),
            Ok(None) => {}
            Err(FileError::NotADirectory { found: "symbolic link", .. }) => {
                let message = "is a symbolic link, which is not followed; \
                               put the folder itself here, or its path into 'discoverGlobs'";
                self.found.report_issue(path, None, message.to_owned());
            }
            Err(FileError::NotADirectory { .. }) if !is_named => {}
            Err(error) => self.found.report_issue(path, None, chain(&error)),
        }
    }

    fn names(&mut self, dir: &Dir) -> Vec<String> {
        match dir.names() {
            Ok(names) => names.into_iter().filter(|name| !is_temp(name)).collect(),
            Err(error) => {
                self.found.report_issue(dir.path().to_owned(), None, chain(&error));
                Vec::new()
            }
        }
    }
}

fn join(relative: &str, name: &str) -> String {
    if relative.is_empty() { name.to_owned() } else { format!("{relative}/{name}") }
}
