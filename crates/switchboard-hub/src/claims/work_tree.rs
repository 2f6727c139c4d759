//! Work trees: the repository of a folder, and the name of a path within the tree.
//!
//! A Git repository can be checked out in several folders (`git worktree`). These share one history, but each has its
//! own files: agents in different work trees do not conflict until both commit.

use std::path::{Component, Path, PathBuf};

use switchboard_core::{Pattern, PatternError, has_wildcard};

/// Work tree: the root folder of a checkout, and its repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkTree {
    /// Folder that all work trees of a repository share: the common Git folder, or the tree itself without Git.
    pub repository: String,
    /// Root folder of the tree, with symbolic links resolved.
    pub root: String,
}

/// Error of a path or pattern that cannot be reserved.
#[derive(Debug, thiserror::Error)]
pub enum WorkTreeError {
    /// The folder cannot be read.
    #[error("the folder {} cannot be read", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The path is outside of the tree.
    #[error("'{}' is outside of {root}", .text.escape_debug())]
    Outside {
        /// The path as given.
        text: String,
        /// Root folder of the tree.
        root: String,
    },
    /// The text is empty.
    #[error("an empty path names no file")]
    Nothing,
    /// The text is not a valid pattern.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// Brace expansion yields too many patterns.
    #[error("'{}' expands to more than {most} patterns", .text.escape_debug())]
    TooMany {
        /// The pattern as given.
        text: String,
        /// Maximum number of patterns.
        most: usize,
    },
}

/// Maximum number of patterns that the braces of one pattern may expand to.
///
/// The limit bounds the work of one request.
const MOST: usize = 64;

impl WorkTree {
    /// Finds the work tree that contains a folder.
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

    /// Returns the working folder and the work tree of a caller in `folder`.
    ///
    /// A folder that does not belong to the workspace yields the workspace's folder and tree.
    pub fn locate(folder: &Path, workspace: &Path) -> Result<(PathBuf, Self), WorkTreeError> {
        let (here, home) = (Self::of(folder)?, Self::of(workspace)?);
        let is_within = resolve(folder).starts_with(resolve(workspace));
        let is_plain = here.root == here.repository;
        match (is_within, is_plain) {
            // A folder of the workspace without a repository belongs to the workspace's tree.
            (true, true) => Ok((folder.to_owned(), home)),
            (true, false) => Ok((folder.to_owned(), here)),
            (false, _) if here.repository == home.repository => Ok((folder.to_owned(), here)),
            (false, _) => Ok((workspace.to_owned(), home)),
        }
    }

    /// Returns the main checkout of the repository, if this tree was added with `git worktree`.
    pub fn main_tree(&self) -> Option<PathBuf> {
        let repository = Path::new(&self.repository);
        let main = (repository.file_name()? == ".git").then(|| repository.parent()).flatten()?;
        (main != Path::new(&self.root)).then(|| main.to_owned())
    }

    /// Expands a path or pattern that a person wrote in a folder of the tree.
    ///
    /// The part before the first wildcard is a path. Symbolic links in it are resolved, so that a file has the same
    /// name by every path that leads to it. A folder stands for everything in it.
    pub fn patterns(&self, folder: &Path, glob: &str) -> Result<Vec<Pattern>, WorkTreeError> {
        let mut patterns = Vec::new();
        for text in
            braces(glob).ok_or_else(|| WorkTreeError::TooMany { text: glob.to_owned(), most: MOST })?
        {
            // An empty text is refused: an unset shell variable must not select everything.
            if text.trim().is_empty() {
                return Err(WorkTreeError::Nothing);
            }
            for path in self.within(folder, &text)? {
                patterns.push(Pattern::parse(&path)?);
            }
        }
        Ok(patterns)
    }

    /// Returns the names within the tree that a path or pattern stands for.
    fn within(&self, folder: &Path, glob: &str) -> Result<Vec<String>, WorkTreeError> {
        let (path, rest) = split(glob);
        let outside = || WorkTreeError::Outside { text: glob.to_owned(), root: self.root.clone() };
        let written = folder.join(path);
        let resolved = resolve(&written);
        let mut names = vec![self.name_of(&resolved).ok_or_else(outside)?];
        if rest.is_empty() {
            // A symbolic link is reserved together with its target.
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

    /// Returns the name of a path within the tree, or `None` if the path is outside.
    fn name_of(&self, path: &Path) -> Option<String> {
        path.strip_prefix(&self.root).ok().map(text)
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn joined(base: &str, other: &str) -> String {
    if base.is_empty() { other.to_owned() } else { format!("{base}/{other}") }
}

/// Splits a pattern into the path before its first wildcard and the rest.
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

/// Resolves symbolic links, `.` and `..` in a path; parts that do not exist stay as written.
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

/// Finds the Git folder that all work trees of a repository share.
///
/// `.git` is either that folder, or a file that names the work tree's own Git folder, whose `commondir` file names the
/// shared one.
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

/// Expands braces: `a.{rs,md}` yields two patterns. Returns `None` if there are too many.
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

/// Finds an innermost pair of braces that contains a comma.
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
