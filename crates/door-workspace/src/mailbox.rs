//! One mailbox folder: what is new in it, what is missing from it.

use std::collections::{BTreeMap, HashSet};

use jiff::Timestamp;
use switchboard_core::{MessageId, Name};
use switchboard_sys::files::{self, Contents, Dir, DirStamp, FileError, FileStamp, Moved};

use crate::delivery::{LARGEST, is_aside, says_the_same};
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

/// Files in a mailbox that the journal does not expect there.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The files, in the order of their senders.
    pub(crate) new: Vec<NewFile>,
    /// Whether something came in during the look, so that another one is due at once.
    pub(crate) again: bool,
}

/// The names in a mailbox folder. A name that Switchboard made is kept as its id, in 16 bytes: of a million files
/// only the names that others chose are in memory.
#[derive(Debug, Default)]
pub(crate) struct Names {
    own: Vec<MessageId>,
    other: Vec<String>,
    /// What was moved out of the way.
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
            None if is_aside(name) => names.aside.push(name.to_owned()),
            None => {}
        })?;
        names.own.sort_unstable();
        names.other.sort_unstable();
        names.aside.sort_unstable();
        Ok(names)
    }

    /// The place of a file among the names.
    fn find(&self, file: &str) -> Option<Place> {
        match own_id(file) {
            Some(id) => self.own.binary_search(&id).ok().map(Place::Own),
            None => self.other.binary_search_by(|name| name.as_str().cmp(file)).ok().map(Place::Other),
        }
    }

    fn files(&self) -> impl Iterator<Item = (Place, String)> {
        let own = self.own.iter().enumerate();
        let own = own.map(|(at, id)| (Place::Own(at), ids::file_name(&ids::to_native(*id))));
        own.chain(self.other.iter().enumerate().map(|(at, name)| (Place::Other(at), name.clone())))
    }
}

/// The id in the name of a file that Switchboard named.
fn own_id(file: &str) -> Option<MessageId> {
    ids::of_file(file).and_then(ids::from_native)
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Own(usize),
    Other(usize),
}

/// Names of a mailbox folder, and which of them the journal expects there.
#[derive(Debug)]
pub(crate) struct Comparison {
    names: Names,
    own: Vec<bool>,
    other: Vec<bool>,
    /// What is expected and was not there: it may be by now.
    missing: HashSet<MessageId>,
    missing_other: HashSet<String>,
}

impl Comparison {
    /// Nothing is expected yet.
    pub(crate) fn of(names: Names) -> Self {
        let (own, other) = (vec![false; names.own.len()], vec![false; names.other.len()]);
        Self { names, own, other, missing: HashSet::new(), missing_other: HashSet::new() }
    }

    pub(crate) fn names(&self) -> &Names {
        &self.names
    }

    /// Notes that a file is expected; says whether it is there.
    pub(crate) fn expect(&mut self, file: &str) -> bool {
        match self.names.find(file) {
            Some(Place::Own(at)) => self.own[at] = true,
            Some(Place::Other(at)) => self.other[at] = true,
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

    fn is_expected(&self, place: Place) -> bool {
        match place {
            Place::Own(at) => self.own[at],
            Place::Other(at) => self.other[at],
        }
    }

    fn is_expected_file(&self, file: &str) -> bool {
        match (self.names.find(file), own_id(file)) {
            (Some(place), _) => self.is_expected(place),
            (None, Some(id)) => self.missing.contains(&id),
            (None, None) => self.missing_other.contains(file),
        }
    }

    /// Reads the files that are not expected.
    ///
    /// A listing is no snapshot: a file made during it may be missing while a later one of the same sender
    /// is there. So after a listing with new files the folder is listed again, and of each sender only
    /// what comes up to its last file of the first listing is taken.
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
            let taken = is_first(&file) || last.get(&file.sender()).is_some_and(|last| file.order < *last);
            if taken { listing.new.push(file) } else { listing.again = true }
        }
        Ok(listing)
    }
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
    let new = tree.create_own_folder(section, to)?;
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
