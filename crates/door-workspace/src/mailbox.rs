//! One mailbox folder: what is new in it, what is missing from it.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use switchboard_core::Name;
use switchboard_hub::files::{self, Contents, Dir, DirStamp, FileError, FileStamp, Moved};

use crate::delivery::{LARGEST, says_the_same};
use crate::ids;
use crate::translate::time_of;
use crate::tree::{Section, Tree};
use crate::wire::{Malformed, MessageFile};

/// A file that nobody has looked at yet.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) name: String,
    pub(crate) modified: Timestamp,
    pub(crate) stamp: String,
    pub(crate) uid: u32,
    pub(crate) content: Result<Box<MessageFile>, Unreadable>,
    /// The place of this file in the order of its sender.
    order: (Timestamp, i128, String),
}

/// Why a file was not taken in.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    File(#[from] FileError),
}

/// A look at a mailbox.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Files that are not expected, in the order of their senders.
    pub(crate) new: Vec<NewFile>,
    /// Names that should be there and are not.
    pub(crate) missing: Vec<String>,
    /// Names that are there as expected.
    pub(crate) present: Vec<String>,
    /// Whether something came in during the look, so that another one is due at once.
    pub(crate) again: bool,
}

/// Looks at a mailbox, where `expected` should be.
///
/// `names` is what was listed before `expected` was read. `on_the_way` may be there and need not be.
///
/// A listing is no snapshot: a file made during it may be missing while a later one of the same sender
/// is there. So after a listing with new files the folder is listed again, and of each sender only
/// what comes up to its last file of the first listing is taken.
pub(crate) fn look(
    mailbox: &Dir,
    names: &HashSet<String>,
    expected: &HashSet<String>,
    on_the_way: &HashSet<String>,
    limit: u64,
) -> Result<Listing, FileError> {
    let (present, mut missing): (Vec<_>, Vec<_>) =
        expected.iter().cloned().partition(|name| names.contains(name));
    // What was delivered since the listing is not missing.
    missing.retain(|name| !matches!(mailbox.stat(name), Ok(Some(_))));
    missing.sort_unstable();
    let mut listing = Listing { missing, present, ..Listing::default() };
    let is_new = |name: &&String| {
        ids::of_file(name).is_some() && !expected.contains(*name) && !on_the_way.contains(*name)
    };
    let first: HashSet<&String> = names.iter().filter(is_new).collect();
    if first.is_empty() {
        return Ok(listing);
    }
    let second = mailbox.names()?;
    let mut files: Vec<NewFile> = Vec::new();
    for name in second.iter().filter(is_new) {
        files.extend(read(mailbox, name, limit));
    }
    files.sort_by(|a, b| a.order.cmp(&b.order));
    let mut last: BTreeMap<String, (Timestamp, i128, String)> = BTreeMap::new();
    for file in files.iter().filter(|file| first.contains(&file.name)) {
        last.insert(file.sender(), file.order.clone());
    }
    for file in files {
        let taken =
            first.contains(&file.name) || last.get(&file.sender()).is_some_and(|last| file.order < *last);
        if taken { listing.new.push(file) } else { listing.again = true }
    }
    Ok(listing)
}

impl NewFile {
    fn sender(&self) -> String {
        self.content.as_ref().map_or_else(|_| String::new(), |file| file.sender.to_ascii_lowercase())
    }
}

/// Reads one file; none where it has gone in the meantime.
pub(crate) fn read(mailbox: &Dir, name: &str, limit: u64) -> Option<NewFile> {
    let (content, stamp) = match mailbox.read(name, limit) {
        Ok(Some(Contents { bytes, stamp })) => (parse(&bytes, name), Some(stamp)),
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
        stamp: stamp.map_or_else(String::new, stamp_text),
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

/// A folder's stamp in words, where it can be trusted: younger than this and a further change may
/// carry the same time, as file systems count in ticks.
pub(crate) fn trusted_stamp(stamp: DirStamp, now: Timestamp) -> Option<String> {
    const TICK: i128 = 50_000_000;
    let age = now.as_nanosecond() - stamp.mtime_ns.max(stamp.ctime_ns);
    (age > TICK).then(|| format!("{}:{}:{}", stamp.inode, stamp.mtime_ns, stamp.ctime_ns))
}

/// A file's stamp in words; empty where the file is gone.
pub(crate) fn stamp_of(mailbox: &Dir, name: &str) -> String {
    mailbox.stat(name).ok().flatten().map_or_else(String::new, stamp_text)
}

fn stamp_text(stamp: FileStamp) -> String {
    format!("{}:{}:{}", stamp.inode, stamp.len, stamp.mtime_ns)
}

/// Moves everything of a renamed agent: what waits, what is archived, its receipts.
pub(crate) fn move_all(tree: &Tree, from: &Name, to: &Name) -> Result<(), FileError> {
    for section in [Section::Inbox, Section::Archive, Section::Outbox] {
        gather(tree, section, from.as_str(), to)?;
    }
    Ok(())
}

/// Moves everything that lies under other spellings of a name to where it is expected from now on.
pub(crate) fn adopt(tree: &Tree, name: &Name) -> Result<(), FileError> {
    for section in [Section::Inbox, Section::Archive, Section::Outbox] {
        for spelling in tree.spellings(section, name.as_str())? {
            gather(tree, section, &spelling, name)?;
        }
    }
    Ok(())
}

/// Moves what lies in the folder of a former name, or of another spelling, into an agent's own.
pub(crate) fn gather(tree: &Tree, section: Section, from: &str, to: &Name) -> Result<(), FileError> {
    let Some(old) = tree.own_folder(section, from)?.filter(|_| from != to.as_str()) else { return Ok(()) };
    // Also for what comes later: a folder that is there in another spelling would do otherwise.
    let new = tree.make_own_folder(section, to)?;
    for name in old.names()? {
        // What is still being written, and what is no message, stays.
        if files::is_temp(&name) || !old.stat(&name)?.is_some_and(|stamp| stamp.is_regular) {
            continue;
        }
        if bring(&old, &new, &name)? == Moved::AlreadyThere {
            tracing::warn!(file = name, from, to = %to, "both folders have this file; it stays in the old one");
        }
    }
    Ok(())
}

/// Moves a file to where it belongs. Where it is already, a second one that says the same is taken away, and any other
/// is left alone.
pub(crate) fn bring(from: &Dir, to: &Dir, name: &str) -> Result<Moved, FileError> {
    // On a file system that ignores case it may be the same folder.
    if from.stamp()?.inode == to.stamp()?.inode {
        return Ok(Moved::SourceMissing);
    }
    let moved = from.move_new(name, to, name)?;
    if moved == Moved::AlreadyThere
        && let (Some(second), Some(first)) = (from.read(name, LARGEST)?, to.read(name, LARGEST)?)
        && says_the_same(&second.bytes, &first.bytes)
        && from.remove(name)?
    {
        return Ok(Moved::Moved);
    }
    Ok(moved)
}
