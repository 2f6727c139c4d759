//! Which repository a folder belongs to, and what a path is called within it.
//!
//! A repository of Git can be checked out in several folders. They have one history, and each has its own files: who
//! works in one is not in the way of who works in another, until both commit.

use std::path::{Component, Path, PathBuf};

use switchboard_core::{Pattern, PatternError, has_wildcard};

/// A folder of files that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkTree {
    /// What all trees of one repository have in common: Git's own folder, or the tree itself where there is none.
    pub repository: String,
    /// Its folder, without links in it.
    pub root: String,
}

/// A path or pattern that cannot be reserved.
#[derive(Debug, thiserror::Error)]
pub enum WorkTreeError {
    /// The folder cannot be looked at.
    #[error("the folder {} cannot be read", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// It leads out of the tree.
    #[error("'{}' is outside of {root}", .text.escape_debug())]
    Outside {
        /// As given.
        text: String,
        /// The tree.
        root: String,
    },
    /// It is empty.
    #[error("an empty text names no file")]
    Nothing,
    /// It is no pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// It stands for too many patterns.
    #[error("'{}' stands for more than {most} patterns", .text.escape_debug())]
    TooMany {
        /// As given.
        text: String,
        /// How many there may be.
        most: usize,
    },
}

/// Most patterns that the braces of one can stand for.
const MOST: usize = 64;

impl WorkTree {
    /// The tree that a folder lies in.
    pub fn of(folder: &Path) -> Result<Self, WorkTreeError> {
        let unreadable = |source| WorkTreeError::Folder { path: folder.to_owned(), source };
        let folder = folder.canonicalize().map_err(unreadable)?;
        let root = folder.ancestors().find(|place| place.join(".git").symlink_metadata().is_ok());
        let Some(root) = root else {
            let root = text(&folder);
            return Ok(Self { repository: root.clone(), root });
        };
        let repository = common_folder(&root.join(".git")).unwrap_or_else(|| root.join(".git"));
        Ok(Self { repository: text(&repository), root: text(root) })
    }

    /// Where somebody in a folder works, who uses a workspace: the folder and its tree, or those of the workspace where
    /// the folder has nothing to do with it.
    pub fn locate(folder: &Path, workspace: &Path) -> Result<(PathBuf, Self), WorkTreeError> {
        let (here, home) = (Self::of(folder)?, Self::of(workspace)?);
        let is_within = resolve(folder).starts_with(resolve(workspace));
        let is_plain = here.root == here.repository;
        match (is_within, is_plain) {
            // Without a repository the workspace is what belongs together.
            (true, true) => Ok((folder.to_owned(), home)),
            (true, false) => Ok((folder.to_owned(), here)),
            (false, _) if here.repository == home.repository => Ok((folder.to_owned(), here)),
            (false, _) => Ok((workspace.to_owned(), home)),
        }
    }

    /// The folder in which a repository was first checked out, where this is one that was added to it.
    pub fn main_tree(&self) -> Option<PathBuf> {
        let repository = Path::new(&self.repository);
        let main = (repository.file_name()? == ".git").then(|| repository.parent()).flatten()?;
        (main != Path::new(&self.root)).then(|| main.to_owned())
    }

    /// The patterns that a person means by a text written in a folder of the tree.
    ///
    /// What stands before the first wildcard is a path: links in it are followed, so that a file has one name however
    /// it is reached. A folder stands for all that is in it.
    pub fn patterns(&self, folder: &Path, given: &str) -> Result<Vec<Pattern>, WorkTreeError> {
        let mut patterns = Vec::new();
        for text in
            braces(given).ok_or_else(|| WorkTreeError::TooMany { text: given.to_owned(), most: MOST })?
        {
            // A variable of a shell that is not set must not stand for everything.
            if text.trim().is_empty() {
                return Err(WorkTreeError::Nothing);
            }
            for path in self.within(folder, &text)? {
                patterns.push(Pattern::parse(&path)?);
            }
        }
        Ok(patterns)
    }

    /// The names of a pattern within the tree.
    fn within(&self, folder: &Path, given: &str) -> Result<Vec<String>, WorkTreeError> {
        let (path, rest) = split(given);
        let outside = || WorkTreeError::Outside { text: given.to_owned(), root: self.root.clone() };
        let written = folder.join(path);
        let resolved = resolve(&written);
        let mut names = vec![self.name_of(&resolved).ok_or_else(outside)?];
        if rest.is_empty() {
            // A link is a file too, beside the one that it leads to.
            if let (Some(parent), Some(name)) = (written.parent(), written.file_name())
                && written.is_symlink()
                && let Some(link) = self.name_of(&resolve(parent).join(name))
            {
                names.push(link);
            }
            if resolved.is_dir() || path.ends_with('/') {
                names[0] = joined(&names[0], "**");
            }
        } else {
            names[0] = joined(&names[0], rest);
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// What a path is called within the tree, where it lies in it.
    fn name_of(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.root).ok().map(text)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn joined(one: &str, other: &str) -> String {
    if one.is_empty() { other.to_owned() } else { format!("{one}/{other}") }
}

/// A pattern as the path before its first wildcard, and the rest.
fn split(text: &str) -> (&str, &str) {
    let mut at = 0;
    for part in text.split_inclusive('/') {
        if has_wildcard(part) {
            return (&text[..at], text[at..].trim_end_matches('/'));
        }
        at += part.len();
    }
    (text, "")
}

/// A path without links, `.` and `..` in it, as far as it exists; what does not is taken as it is written.
fn resolve(path: &Path) -> PathBuf {
    let mut resolved = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(resolved.pop()),
            other => {
                resolved.push(other);
                if let Ok(real) = resolved.canonicalize() {
                    resolved = real;
                }
            }
        }
    }
    resolved
}

/// The folder that all trees of a repository have in common. `.git` is that folder, or a file that names the tree's own
/// one, which names the common one where it is not itself that.
fn common_folder(git: &Path) -> Option<PathBuf> {
    if git.is_dir() {
        return git.canonicalize().ok();
    }
    let file = std::fs::read_to_string(git).ok()?;
    let own = git.parent()?.join(file.strip_prefix("gitdir:")?.trim());
    let common = match std::fs::read_to_string(own.join("commondir")) {
        Ok(common) => own.join(common.trim()),
        Err(_) => own,
    };
    common.canonicalize().ok()
}

/// The patterns that braces stand for: `a.{rs,md}` is two. Nothing where there are too many.
fn braces(text: &str) -> Option<Vec<String>> {
    let mut open = vec![text.to_owned()];
    let mut done = Vec::new();
    while let Some(text) = open.pop() {
        if open.len() + done.len() >= MOST {
            return None;
        }
        match inner_braces(&text) {
            Some((start, end)) => {
                for choice in text[start + 1..end].split(',') {
                    open.push(format!("{}{choice}{}", &text[..start], &text[end + 1..]));
                }
            }
            None => done.push(text),
        }
    }
    done.sort_unstable();
    done.dedup();
    Some(done)
}

/// A pair of braces with a comma and no braces in it.
fn inner_braces(text: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let end = from + text[from..].find('}')?;
        if let Some(start) = text[..end].rfind('{')
            && text[start..end].contains(',')
            && !text[start + 1..end].contains('}')
        {
            return Some((start, end));
        }
        from = end + 1;
    }
}

#[cfg(test)]
#[path = "work_tree_tests.rs"]
mod tests;
