//! The `.switchboard/` folder: where everything is.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use switchboard_core::Name;
use switchboard_sys::files::{Created, Dir, DirStamp, Durability, FileError};

use crate::error::WorkspaceError;

/// The folder's name in a workspace.
pub const FOLDER: &str = ".switchboard";

/// Nothing here is meant to be committed but what the team wrote itself.
const GITIGNORE: &str = "# Written by switchboard: mail, state and secrets stay out of the repository.\n\
    *\n!.gitignore\n!mcps/\n!mcps/**\n!mcp-descriptions.json\n!workflows/\n!workflows/**\n";

/// The folders that always exist.
const FOLDERS: [&str; 4] = ["inbox", "archive", "outbox", "reviews"];

/// The open `.switchboard/` folder. Every path below it is made of validated names.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Dir,
    /// Open handles of the sections, each with its inode. Clones share them.
    sections: Arc<Mutex<HashMap<Section, (u64, Dir)>>>,
}

/// One of the folders that hold a folder per agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// What waits for an agent.
    Inbox,
    /// What an agent is done with.
    Archive,
    /// Receipts for what an agent sent.
    Outbox,
}

impl Section {
    /// The folder's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Archive => "archive",
            Self::Outbox => "outbox",
        }
    }
}

impl Tree {
    /// Opens the folder of a workspace.
    pub fn open(workspace: &Path) -> Result<Self, WorkspaceError> {
        match Dir::open_root(workspace)?.subdir(FOLDER)? {
            Some(root) => Ok(Self { root, sections: Arc::default() }),
            None => Err(WorkspaceError::NotAWorkspace { path: workspace.to_owned() }),
        }
    }

    /// Makes the folder of a workspace, or what is missing of it. What is there is left alone.
    pub fn create(workspace: &Path) -> Result<(Self, Created), WorkspaceError> {
        let workspace = Dir::open_root(workspace)?;
        let made = match workspace.subdir(FOLDER)? {
            Some(_) => Created::AlreadyThere,
            None => Created::Created,
        };
        let root = workspace.make_subdir(FOLDER)?;
        for folder in FOLDERS {
            root.make_subdir(folder)?;
        }
        root.create_new(".gitignore", GITIGNORE.as_bytes(), Durability::Later)?;
        Ok((Self { root, sections: Arc::default() }, made))
    }

    /// The folder itself.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// The workspace itself, in which `.switchboard/` lies.
    pub(crate) fn workspace(&self) -> Result<Dir, FileError> {
        let path = self.root.path();
        Dir::open_root(path.parent().unwrap_or(path))
    }

    /// Whether the folder is still where it was opened.
    pub fn check_not_moved(&self) -> Result<(), WorkspaceError> {
        if self.root.is_in_place() {
            Ok(())
        } else {
            Err(WorkspaceError::Moved { path: self.root.path().to_owned() })
        }
    }

    /// The user that the workspace belongs to.
    pub(crate) fn owner(&self) -> Option<u32> {
        use std::os::unix::fs::MetadataExt;
        std::fs::symlink_metadata(self.root.path()).ok().map(|found| found.uid())
    }

    /// An agent's folder in a section, made where it is missing. One that is there in another spelling will do: of a
    /// name that nobody has registered, none is the right one.
    pub fn create_folder(&self, section: Section, agent: &Name) -> Result<Dir, FileError> {
        match self.folder(section, agent.as_str())? {
            Some(folder) => Ok(folder),
            None => self.create_own_folder(section, agent),
        }
    }

    /// An agent's folder in a section, where it exists, be it in another spelling.
    pub fn folder(&self, section: Section, agent: &str) -> Result<Option<Dir>, FileError> {
        if let Some(folder) = self.own_folder(section, agent)? {
            return Ok(Some(folder));
        }
        match self.spellings(section, agent)?.first() {
            Some(spelling) => self.own_folder(section, spelling),
            None => Ok(None),
        }
    }

    /// The folder in a section that spells a name in exactly this way, made where it is missing.
    pub(crate) fn create_own_folder(&self, section: Section, agent: &Name) -> Result<Dir, FileError> {
        self.root.make_subdir(section.as_str())?.make_subdir(agent.as_str())
    }

    /// The folder in a section that spells a name in exactly this way, where it exists.
    pub(crate) fn own_folder(&self, section: Section, agent: &str) -> Result<Option<Dir>, FileError> {
        match self.section(section)? {
            Some(section) => section.subdir(agent),
            None => Ok(None),
        }
    }

    /// The stamp of [`Tree::own_folder`]. Opens no file.
    pub(crate) fn own_folder_metadata(
        &self,
        section: Section,
        agent: &str,
    ) -> Result<Option<DirStamp>, FileError> {
        match self.section(section)? {
            Some(section) => section.subdir_stamp(agent),
            None => Ok(None),
        }
    }

    /// The folder of a section, where it exists. It is opened once, and again after another one has taken its place.
    fn section(&self, section: Section) -> Result<Option<Dir>, FileError> {
        let Some(found) = self.root.subdir_stamp(section.as_str())? else { return Ok(None) };
        let mut open = self.sections.lock();
        if let Some((inode, dir)) = open.get(&section)
            && *inode == found.inode
        {
            return Ok(Some(dir.clone()));
        }
        let Some(dir) = self.root.subdir(section.as_str())? else { return Ok(None) };
        open.insert(section, (dir.stamp()?.inode, dir.clone()));
        Ok(Some(dir))
    }

    /// How the folders of a section spell a name, in their order.
    pub(crate) fn spellings(&self, section: Section, agent: &str) -> Result<Vec<String>, FileError> {
        let mut folders = self.folders(section)?;
        folders.retain(|folder| folder.eq_ignore_ascii_case(agent));
        folders.sort_unstable();
        Ok(folders)
    }

    /// The names of what is in a section: one folder per agent, and whatever else lies there.
    pub fn folders(&self, section: Section) -> Result<Vec<String>, FileError> {
        match self.root.subdir(section.as_str())? {
            Some(section) => Ok(section.names()?.into_iter().filter(|name| !name.starts_with('.')).collect()),
            None => Ok(Vec::new()),
        }
    }
}

/// Agents' folders, each made and opened once for all the files that are put there in one go.
pub(crate) struct Folders<'t> {
    tree: &'t Tree,
    open: HashMap<(Section, Name), Dir>,
}

impl<'t> Folders<'t> {
    pub(crate) fn new(tree: &'t Tree) -> Self {
        Self { tree, open: HashMap::new() }
    }

    /// The folder that they are all in.
    pub(crate) fn root(&self) -> &'t Dir {
        self.tree.root()
    }

    /// An agent's folder in a section, made where it is missing.
    pub(crate) fn open_or_create(&mut self, section: Section, agent: &Name) -> Result<Dir, FileError> {
        let key = (section, agent.clone());
        if let Some(folder) = self.open.get(&key) {
            return Ok(folder.clone());
        }
        let folder = self.tree.create_folder(section, agent)?;
        self.open.insert(key, folder.clone());
        Ok(folder)
    }

    /// Whether an agent's archive has a file of this name.
    pub(crate) fn is_archived(&self, agent: &Name, name: &str) -> bool {
        let archive = self.tree.folder(Section::Archive, agent.as_str()).ok().flatten();
        archive.is_some_and(|archive| matches!(archive.stat(name), Ok(Some(_))))
    }
}
