//! One mailbox folder: reconciles its files with the journal and finds new and missing files.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use switchboard_core::{MessageId, Name};
use switchboard_sys::files::{self, Contents, Dir, DirStat, FileError, FileStat, Moved};

use crate::delivery::{LARGEST, is_conflict_name, is_equivalent_file};
use crate::ids;
use crate::translate::time_of;
use crate::tree::{Section, Tree};
use crate::wire::{Malformed, MessageFile};

/// A file that was not processed yet.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) name: String,
    pub(crate) modified: Timestamp,
    pub(crate) stamp: String,
    pub(crate) uid: u32,
    pub(crate) content: Result<Box<MessageFile>, Unreadable>,
    /// Sort key among the files of the same sender.
    order: (Timestamp, i128, String),
}

/// Error while reading a message file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Unexpected files in a mailbox: files that the journal does not list.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Unexpected files, sorted in sender order.
    pub(crate) new: Vec<NewFile>,
    /// True if files arrived during the listing, so that another scan must follow at once.
    pub(crate) needs_rescan: bool,
}

/// Names of the files in a mailbox folder.
///
/// File names made by Switchboard are stored as ids of 16 bytes. Only names made by other programs take more memory,
/// which matters with a million files.
#[derive(Debug, Default)]
pub(crate) struct Names {
    own: Vec<MessageId>,
    other: Vec<String>,
    /// Names of files that were moved aside.
    pub(crate) aside: Vec<String>,
}

impl Names {
    pub(crate) fn list(mailbox: &Dir) -> Result<Self, FileError> {
        let mut names = Self::default();
        mailbox.visit_names(|name| match ids::of_file(name) {
            Some(native) => match ids::from_native(native) {
                Some(id) => names.own.push(id),
                None => names.other.push(name.to_owned()),
            },
            None if is_conflict_name(name) => names.aside.push(name.to_owned()),
            None => {}
        })?;
        names.own.sort_unstable();
        names.other.sort_unstable();
        names.aside.sort_unstable();
        Ok(names)
    }

    /// Finds the index of a file name.
    fn find(&self, file: &str) -> Option<NameIndex> {
        match own_id(file) {
            Some(id) => self.own.binary_search(&id).ok().map(NameIndex::Own),
            None => self.other.binary_search_by(|name| name.as_str().cmp(file)).ok().map(NameIndex::Other),
        }
    }

    fn files(&self) -> impl Iterator<Item = (NameIndex, String)> {
        let own = self.own.iter().enumerate();
        let own = own.map(|(at, id)| (NameIndex::Own(at), ids::file_name(&ids::to_native(*id))));
        own.chain(self.other.iter().enumerate().map(|(at, name)| (NameIndex::Other(at), name.clone())))
    }
}

/// Returns the message id in a file name made by Switchboard; `None` for other names.
fn own_id(file: &str) -> Option<MessageId> {
    ids::of_file(file).and_then(ids::from_native)
}

#[derive(Debug, Clone, Copy)]
enum NameIndex {
    Own(usize),
    Other(usize),
}

/// Comparison of a mailbox folder's file names with the files that the journal expects.
#[derive(Debug)]
pub(crate) struct Comparison {
    names: Names,
    own: Vec<bool>,
    other: Vec<bool>,
    /// Ids of expected files that were missing in the listing; the files may have arrived since.
    missing: HashSet<MessageId>,
    missing_other: HashSet<String>,
}

impl Comparison {
    /// Creates a comparison in which no file is expected yet.
    pub(crate) fn of(names: Names) -> Self {
        let (own, other) = (vec![false; names.own.len()], vec![false; names.other.len()]);
        Self { names, own, other, missing: HashSet::new(), missing_other: HashSet::new() }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Records that a file is expected; returns true if the listing contains the file.
    pub(crate) fn expect(&mut self, file: &str) -> bool {
        match self.names.find(file) {
            Some(NameIndex::Own(at)) => self.own[at] = true,
            Some(NameIndex::Other(at)) => self.other[at] = true,
            None => {
                match own_id(file) {
                    Some(id) => drop(self.missing.insert(id)),
                    None => drop(self.missing_other.insert(file.to_owned())),
                }
                return false;
            }
        }
        true
    }

    fn is_expected(&self, index: NameIndex) -> bool {
        match index {
            NameIndex::Own(at) => self.own[at],
            NameIndex::Other(at) => self.other[at],
        }
    }

    fn is_expected_file(&self, file: &str) -> bool {
        match (self.names.find(file), own_id(file)) {
            (Some(index), _) => self.is_expected(index),
            (None, Some(id)) => self.missing.contains(&id),
            (None, None) => self.missing_other.contains(file),
        }
    }

    /// Reads the files that are not expected.
    ///
    /// A listing is not a snapshot: it may miss a file created during the listing and contain a later file of the same
    /// sender. So if there are new files, the folder is listed a second time. Of each sender, only the files up to the
    /// last one in the first listing are ingested.
    pub(crate) fn read_new(&self, mailbox: &Dir, limit: u64) -> Result<Listing, FileError> {
        let mut listing = Listing::default();
        if !self.own.contains(&false) && !self.other.contains(&false) {
            return Ok(listing);
        }
        let second = Names::list(mailbox)?;
        let mut files: Vec<NewFile> = Vec::new();
        for (_, name) in second.files().filter(|(_, name)| !self.is_expected_file(name)) {
            files.extend(read(mailbox, &name, limit));
        }
        files.sort_by(|a, b| a.order.cmp(&b.order));
        let mut last: BTreeMap<String, (Timestamp, i128, String)> = BTreeMap::new();
        let is_first = |file: &NewFile| self.names.find(&file.name).is_some();
        for file in files.iter().filter(|file| is_first(file)) {
            last.insert(file.sender(), file.order.clone());
        }
        for file in files {
            let is_ingested =
                is_first(&file) || last.get(&file.sender()).is_some_and(|last| file.order < *last);
            if is_ingested { listing.new.push(file) } else { listing.needs_rescan = true }
        }
        Ok(listing)
    }
}

impl NewFile {
    fn sender(&self) -> String {
        self.content.as_ref().map_or_else(|_| String::new(), |file| file.sender.to_ascii_lowercase())
    }
}

/// Reads one file; returns `None` if the file was removed in the meantime.
pub(crate) fn read(mailbox: &Dir, name: &str, limit: u64) -> Option<NewFile> {
    let (content, stamp) = match mailbox.read(name, limit) {
        Ok(Some(Contents { bytes, stat: stamp })) => (parse(&bytes, name), Some(stamp)),
        Ok(None) => return None,
        Err(error) => (Err(error.into()), mailbox.stat(name).ok().flatten()),
    };
    let mtime = stamp.map_or(0, |stamp| stamp.mtime_ns);
    let modified = Timestamp::from_nanosecond(mtime).unwrap_or(Timestamp::UNIX_EPOCH);
    let created = content.as_ref().ok().and_then(|file| time_of(file.created_at.as_deref()?));
    Some(NewFile {
        order: (created.unwrap_or(modified), mtime, name.to_owned()),
        name: name.to_owned(),
        modified,
        stamp: stamp.map_or_else(String::new, format_fingerprint),
        uid: stamp.map_or(0, |stamp| stamp.uid),
        content,
    })
}

fn parse(bytes: &[u8], name: &str) -> Result<Box<MessageFile>, Unreadable> {
    let file = MessageFile::parse(bytes)?;
    match ids::of_file(name) {
        Some(id) if id == file.id => Ok(Box::new(file)),
        _ => {
            let problem = format!("is '{}' but the file is named '{name}'", file.id.escape_debug());
            Err(Malformed::Field { field: "id", problem }.into())
        }
    }
}

/// Formats a folder's fingerprint; returns `None` if the folder changed a moment ago.
///
/// File timestamps have the granularity of a clock tick, so another change within the same tick would not alter the
/// fingerprint.
pub(crate) fn stable_fingerprint(stamp: DirStat, now: Timestamp) -> Option<String> {
    // 50 ms in nanoseconds: more than the 10 ms of a kernel tick, to which file systems round timestamps.
    const TICK: i128 = 50_000_000;
    let age = now.as_nanosecond() - stamp.mtime_ns.max(stamp.ctime_ns);
    (age > TICK).then(|| format!("{}:{}:{}", stamp.inode, stamp.mtime_ns, stamp.ctime_ns))
}

/// Returns a file's fingerprint, or an empty string if the file was removed.
pub(crate) fn file_fingerprint(mailbox: &Dir, name: &str) -> String {
    mailbox.stat(name).ok().flatten().map_or_else(String::new, format_fingerprint)
}

fn format_fingerprint(stamp: FileStat) -> String {
    format!("{}:{}:{}", stamp.inode, stamp.len, stamp.mtime_ns)
}

/// Moves all files of a renamed agent: waiting and archived messages, and receipts.
pub(crate) fn move_renamed(tree: &Tree, from: &Name, to: &Name) -> Result<(), FileError> {
    for section in [Section::Inbox, Section::Archive, Section::Outbox] {
        merge_folder(tree, section, from.as_str(), to)?;
    }
    Ok(())
}

/// Moves all files under other spellings of a name into the folder with this spelling.
pub(crate) fn merge_spellings(tree: &Tree, name: &Name) -> Result<(), FileError> {
    for section in [Section::Inbox, Section::Archive, Section::Outbox] {
        for spelling in tree.spellings(section, name.as_str())? {
            merge_folder(tree, section, &spelling, name)?;
        }
    }
    Ok(())
}

/// Merges the files of another folder into an agent's own folder.
///
/// The other folder has a former name or another spelling of the name.
pub(crate) fn merge_folder(tree: &Tree, section: Section, from: &str, to: &Name) -> Result<(), FileError> {
    let Some(old) = tree.own_folder(section, from)?.filter(|_| from != to.as_str()) else { return Ok(()) };
    // Create the folder even if there is nothing to move: otherwise a folder in another spelling would be used.
    let new = tree.create_own_folder(section, to)?;
    for name in old.names()? {
        // Temporary files and entries that are not regular files are not moved.
        if files::is_temp(&name) || !old.stat(&name)?.is_some_and(|stamp| stamp.is_regular) {
            continue;
        }
        if move_file(&old, &new, &name)? == Moved::AlreadyExists {
            tracing::warn!(file = name, from, to = %to, "both folders have this file; it stays in the old one");
        }
    }
    Ok(())
}

/// Moves a file to another folder.
///
/// If the target exists, an equivalent source file is removed, and a different source file stays.
pub(crate) fn move_file(from: &Dir, to: &Dir, name: &str) -> Result<Moved, FileError> {
    // On a case-insensitive file system, both paths can be the same folder.
    if from.dir_stat()?.inode == to.dir_stat()?.inode {
        return Ok(Moved::SourceMissing);
    }
    let moved = from.move_new(name, to, name)?;
    if moved == Moved::AlreadyExists
        && let (Some(second), Some(first)) = (from.read(name, LARGEST)?, to.read(name, LARGEST)?)
        && is_equivalent_file(&second.bytes, &first.bytes)
        && from.remove(name)?
    {
        return Ok(Moved::Moved);
    }
    Ok(moved)
}
