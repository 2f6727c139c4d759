//! One mailbox folder: reconciles its files with the journal, finding new and missing ones.

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
    /// Sort key of this file among those of its sender.
    order: (Timestamp, i128, String),
}

/// Error of reading a message file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    File(#[from] FileError),
}

/// Files in a mailbox that the journal does not expect there.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The files, in the order of their senders.
    pub(crate) new: Vec<NewFile>,
    /// True if files arrived during the listing, so that another scan is due at once.
    pub(crate) needs_rescan: bool,
}

/// Names in a mailbox folder. Our own file names are stored as ids of 16 bytes, so that of a million files only names
/// that other programs chose take more memory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    own: Vec<MessageId>,
    other: Vec<String>,
    /// Files that were moved aside.
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

    /// Finds the index of a file among the names.
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

/// Returns the id in the name of a file that we named.
fn own_id(file: &str) -> Option<MessageId> {
    ids::of_file(file).and_then(ids::from_native)
}

#[derive(Debug, Clone, Copy)]
enum NameIndex {
    Own(usize),
    Other(usize),
}

/// Names of a mailbox folder, and which of them the journal expects.
#[derive(Debug)]
pub(crate) struct Comparison {
    names: Names,
    own: Vec<bool>,
    other: Vec<bool>,
    /// Expected files that were missing at the listing; they may have arrived since.
    missing: HashSet<MessageId>,
    missing_other: HashSet<String>,
}

impl Comparison {
    /// Starts a comparison that expects no file.
    pub(crate) fn of(names: Names) -> Self {
        let (own, other) = (vec![false; names.own.len()], vec![false; names.other.len()]);
        Self { names, own, other, missing: HashSet::new(), missing_other: HashSet::new() }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Records that a file is expected; returns true if it is there.
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
    /// A listing is no snapshot: it may miss a file created during it and contain a later one of the same sender. So
    /// new files cause a second listing, and of each sender only files up to its last one in the first listing are
    /// ingested.
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

/// Reads one file; `None` if it was removed meanwhile.
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

/// Formats a folder's fingerprint. `None` if the folder changed so recently that a further change may have the same
/// time, because file systems count in ticks.
pub(crate) fn stable_fingerprint(stamp: DirStat, now: Timestamp) -> Option<String> {
    // Nanoseconds; longer than the 10 ms of a kernel tick, by which file systems round.
    const TICK: i128 = 50_000_000;
    let age = now.as_nanosecond() - stamp.mtime_ns.max(stamp.ctime_ns);
    (age > TICK).then(|| format!("{}:{}:{}", stamp.inode, stamp.mtime_ns, stamp.ctime_ns))
}

/// Returns a file's fingerprint; empty if the file was removed.
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

/// Moves all files under other spellings of a name into the folder of this spelling.
pub(crate) fn merge_spellings(tree: &Tree, name: &Name) -> Result<(), FileError> {
    for section in [Section::Inbox, Section::Archive, Section::Outbox] {
        for spelling in tree.spellings(section, name.as_str())? {
            merge_folder(tree, section, &spelling, name)?;
        }
    }
    Ok(())
}

/// Moves the files of a former name's folder, or of another spelling, into an agent's own folder.
pub(crate) fn merge_folder(tree: &Tree, section: Section, from: &str, to: &Name) -> Result<(), FileError> {
    let Some(old) = tree.own_folder(section, from)?.filter(|_| from != to.as_str()) else { return Ok(()) };
    // Create it even if there is nothing to move: otherwise a folder in another spelling would be used.
    let new = tree.create_own_folder(section, to)?;
    for name in old.names()? {
        // Partial files, and entries that are no regular files, stay.
        if files::is_temp(&name) || !old.stat(&name)?.is_some_and(|stamp| stamp.is_regular) {
            continue;
        }
        if move_file(&old, &new, &name)? == Moved::AlreadyExists {
            tracing::warn!(file = name, from, to = %to, "both folders have this file; it stays in the old one");
        }
    }
    Ok(())
}

/// Moves a file to another folder. If the target exists, an equivalent source file is removed and any other stays.
pub(crate) fn move_file(from: &Dir, to: &Dir, name: &str) -> Result<Moved, FileError> {
    // On a case-insensitive file system both can be the same folder.
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
