//! Layout of the `.switchboard/` folder.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use switchboard_core::Name;
use switchboard_sys::files::{Created, Dir, DirStat, Durability, FileError};

use crate::error::WorkspaceError;

/// Name of the folder in a workspace.
pub const FOLDER: &str = ".switchboard";

/// Content of `.gitignore`, which excludes everything except files that the team writes itself.
const GITIGNORE: &str = "# Written by switchboard: mail, state and secrets stay out of the repository.\n\
    *\n!.gitignore\n!mcps/\n!mcps/**\n!mcp-descriptions.json\n!workflows/\n!workflows/**\n";

/// The subfolders that always exist.
const FOLDERS: [&str; 4] = ["inbox", "archive", "outbox", "reviews"];

/// Handle to the open `.switchboard/` folder. All paths below the folder are built from validated names.
#[derive(Debug, Clone)]
pub struct Tree {
    root: Dir,
    /// Cache of open section folders, each with its inode. Clones share the cache.
    sections: Arc<Mutex<HashMap<Section, (u64, Dir)>>>,
}

/// A section of the tree: a folder that contains one folder per agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// Mailboxes with waiting messages.
    Inbox,
    /// Archives of messages whose deliveries have ended.
    Archive,
    /// Receipts for the messages that an agent sent.
    Outbox,
}

impl Section {
    /// Returns the name of the section's folder.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Archive => "archive",
            Self::Outbox => "outbox",
        }
    }
}

impl Tree {
    /// Opens the `.switchboard/` folder of a workspace.
    pub fn open(workspace: &Path) -> Result<Self, WorkspaceError> {
        match Dir::open_root(workspace)?.subdir(FOLDER)? {
            Some(root) => Ok(Self { root, sections: Arc::default() }),
            None => Err(WorkspaceError::NotAWorkspace { path: workspace.to_owned() }),
        }
    }

    /// Creates the `.switchboard/` folder of a workspace, with its subfolders. Existing folders stay unchanged.
    pub fn create(workspace: &Path) -> Result<(Self, Created), WorkspaceError> {
        let workspace = Dir::open_root(workspace)?;
        let made = match workspace.subdir(FOLDER)? {
            Some(_) => Created::AlreadyExists,
            None => Created::Created,
        };
        let root = workspace.ensure_subdir(FOLDER)?;
        for folder in FOLDERS {
            root.ensure_subdir(folder)?;
        }
        root.create_new(".gitignore", GITIGNORE.as_bytes(), Durability::Unsynced)?;
        Ok((Self { root, sections: Arc::default() }, made))
    }

    /// Returns the `.switchboard/` folder.
    pub fn root(&self) -> &Dir {
        &self.root
    }

    /// Opens the workspace folder that contains `.switchboard/`.
    pub fn workspace(&self) -> Result<Dir, FileError> {
        let path = self.root.path();
        Dir::open_root(path.parent().unwrap_or(path))
    }

    /// Checks that the folder is still at the path at which it was opened.
    pub fn check_not_moved(&self) -> Result<(), WorkspaceError> {
        if self.root.is_at_path() {
            Ok(())
        } else {
            Err(WorkspaceError::Moved { path: self.root.path().to_owned() })
        }
    }

    /// Returns the user id of the workspace's owner.
    pub(crate) fn owner(&self) -> Option<u32> {
        use std::os::unix::fs::MetadataExt;
        std::fs::symlink_metadata(self.root.path()).ok().map(|found| found.uid())
    }

    /// Opens or creates an agent's folder in a section.
    ///
    /// A folder in another spelling is accepted, because an unregistered name has no canonical spelling.
    pub fn create_folder(&self, section: Section, agent: &Name) -> Result<Dir, FileError> {
        match self.folder(section, agent.as_str())? {
            Some(folder) => Ok(folder),
            None => self.create_own_folder(section, agent),
        }
    }

    /// Opens an agent's folder in a section, in any spelling.
    ///
    /// Returns `None` if the folder does not exist.
    pub fn folder(&self, section: Section, agent: &str) -> Result<Option<Dir>, FileError> {
        if let Some(folder) = self.own_folder(section, agent)? {
            return Ok(Some(folder));
        }
        match self.spellings(section, agent)?.first() {
            Some(spelling) => self.own_folder(section, spelling),
            None => Ok(None),
        }
    }

    /// Opens or creates an agent's folder with exactly this spelling.
    pub(crate) fn create_own_folder(&self, section: Section, agent: &Name) -> Result<Dir, FileError> {
        self.root.ensure_subdir(section.as_str())?.ensure_subdir(agent.as_str())
    }

    /// Opens an agent's folder with exactly this spelling.
    ///
    /// Returns `None` if the folder does not exist.
    pub(crate) fn own_folder(&self, section: Section, agent: &str) -> Result<Option<Dir>, FileError> {
        match self.section(section)? {
            Some(section) => section.subdir(agent),
            None => Ok(None),
        }
    }

    /// Returns the inode and timestamps of the folder that [`Tree::own_folder`] opens. Opens no file.
    pub(crate) fn own_folder_metadata(
        &self,
        section: Section,
        agent: &str,
    ) -> Result<Option<DirStat>, FileError> {
        match self.section(section)? {
            Some(section) => section.subdir_stat(agent),
            None => Ok(None),
        }
    }

    /// Opens the folder of a section. The handle is cached until the folder is replaced by another one.
    fn section(&self, section: Section) -> Result<Option<Dir>, FileError> {
        let Some(found) = self.root.subdir_stat(section.as_str())? else { return Ok(None) };
        let mut open = self.sections.lock();
        if let Some((inode, dir)) = open.get(&section)
            && *inode == found.inode
        {
            return Ok(Some(dir.clone()));
        }
        let Some(dir) = self.root.subdir(section.as_str())? else { return Ok(None) };
        open.insert(section, (dir.dir_stat()?.inode, dir.clone()));
        Ok(Some(dir))
    }

    /// Returns the existing spellings of a name in a section, sorted.
    pub(crate) fn spellings(&self, section: Section, agent: &str) -> Result<Vec<String>, FileError> {
        let mut folders = self.folders(section)?;
        folders.retain(|folder| folder.eq_ignore_ascii_case(agent));
        folders.sort_unstable();
        Ok(folders)
    }

    /// Returns the names of all entries in a section: agents' folders and other files.
    pub fn folders(&self, section: Section) -> Result<Vec<String>, FileError> {
        match self.root.subdir(section.as_str())? {
            Some(section) => Ok(section.names()?.into_iter().filter(|name| !name.starts_with('.')).collect()),
            None => Ok(Vec::new()),
        }
    }
}

/// Cache of agents' folders, so that each is opened once per batch.
pub(crate) struct Folders<'t> {
    tree: &'t Tree,
    open: HashMap<(Section, Name), Dir>,
}

impl<'t> Folders<'t> {
    pub(crate) fn new(tree: &'t Tree) -> Self {
        Self { tree, open: HashMap::new() }
    }

    /// Returns the `.switchboard/` folder.
    pub(crate) fn root(&self) -> &'t Dir {
        self.tree.root()
    }

    /// Opens or creates an agent's folder in a section.
    pub(crate) fn open_or_create(&mut self, section: Section, agent: &Name) -> Result<Dir, FileError> {
        let key = (section, agent.clone());
        if let Some(folder) = self.open.get(&key) {
            return Ok(folder.clone());
        }
        let folder = self.tree.create_folder(section, agent)?;
        self.open.insert(key, folder.clone());
        Ok(folder)
    }

    /// Returns true if an agent's archive contains a file of this name.
    pub(crate) fn is_archived(&self, agent: &Name, name: &str) -> bool {
        let archive = self.tree.folder(Section::Archive, agent.as_str()).ok().flatten();
        archive.is_some_and(|archive| matches!(archive.stat(name), Ok(Some(_))))
    }
}
