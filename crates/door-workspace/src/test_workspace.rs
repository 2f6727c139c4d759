//! A workspace in a temporary folder, with helpers that change its files like a careless program.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jiff::SignedDuration;
use serde_json::{Value, json};
use switchboard_core::{Address, AgentId, Delivery, Door, Kind, MessageId, Name, Receipt};
use switchboard_hub::{HubConfig, MailboxQuery, Part, Registration};
use switchboard_sys::clock::Clock;
use tempfile::TempDir;

use crate::config::Config;
use crate::delivery;
use crate::ids;
use crate::tree::{FOLDER, Tree};
use crate::workspace::{OutgoingMessage, Workspace};

/// A workspace whose clock is fixed at its creation, so that every folder counts as just changed.
pub(crate) struct TestWorkspace {
    pub(crate) workspace: Workspace,
    pub(crate) clock: Clock,
    folder: TempDir,
    config: Config,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

pub(crate) fn outgoing(from: &str, to: &str, body: &str) -> OutgoingMessage {
    OutgoingMessage::new(agent(from), to.parse::<Address>().unwrap(), Kind::delegate_task(), body)
}

/// Builds a message file as another program writes it.
pub(crate) fn message(id: &str, sender: &str, recipient: &str, payload: &str) -> Value {
    json!({
        "id": id, "action": "delegate_task", "sender": sender, "recipient": recipient, "payload": payload,
        "createdAt": "2025-01-01T00:00:00.000Z",
    })
}

/// Overwrites fields of a message file.
pub(crate) fn with(mut message: Value, fields: Value) -> Value {
    let (Value::Object(into), Value::Object(fields)) = (&mut message, fields) else { panic!("two objects") };
    into.extend(fields);
    message
}

/// Writes like a careless program: in place, over existing files, through symbolic links.
#[expect(clippy::disallowed_methods, reason = "stands for a program that takes no care")]
pub(crate) fn write_carelessly(path: &Path, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Moves like `mv`.
#[expect(clippy::disallowed_methods, reason = "stands for a person at a shell")]
pub(crate) fn move_carelessly(from: &Path, to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    std::fs::rename(from, to).unwrap();
}

/// Returns the names in a folder, sorted; empty if there is no folder.
pub(crate) fn names_in(path: &Path) -> Vec<String> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

impl TestWorkspace {
    /// Creates a workspace with these agents.
    pub(crate) async fn new(agents: &[&str]) -> Self {
        Self::with(Config::default(), agents).await
    }

    pub(crate) async fn with(config: Config, agents: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        Tree::create(folder.path()).unwrap();
        let clock = Clock::manual(Clock::system().now());
        let workspace = open(folder.path(), &config, &clock).await;
        for agent in agents {
            workspace.register(Registration::mailbox(name(agent))).await.unwrap();
        }
        Self { workspace, clock, folder, config }
    }

    /// Opens a second handle on the workspace, like another process.
    pub(crate) async fn open_another(&self) -> Workspace {
        open(self.folder.path(), &self.config, &self.clock).await
    }

    /// Closes the workspace, changes its files, and opens it again.
    pub(crate) async fn reopen_after(self, meanwhile: impl FnOnce(&Path)) -> Self {
        self.workspace.close().await;
        let Self { workspace, clock, folder, config } = self;
        drop(workspace);
        meanwhile(&folder.path().join(FOLDER));
        let workspace = open(folder.path(), &config, &clock).await;
        Self { workspace, clock, folder, config }
    }

    /// Closes the workspace, deletes its database, and opens it again.
    pub(crate) async fn lose_database(self) -> Self {
        self.reopen_after(|root| {
            for name in names_in(root).iter().filter(|name| name.starts_with("hub.")) {
                std::fs::remove_file(root.join(name)).unwrap();
            }
        })
        .await
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join(FOLDER)
    }

    pub(crate) fn workspace_folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root().join(below)
    }

    pub(crate) fn names(&self, below: &str) -> Vec<String> {
        names_in(&self.path(below))
    }

    pub(crate) fn bytes(&self, below: &str) -> Vec<u8> {
        std::fs::read(self.path(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
    }

    pub(crate) fn json(&self, below: &str) -> Value {
        serde_json::from_slice(&self.bytes(below)).unwrap_or_else(|error| panic!("{below}: {error}"))
    }

    pub(crate) fn write(&self, below: &str, bytes: impl AsRef<[u8]>) {
        write_carelessly(&self.path(below), bytes);
    }

    /// Writes a message file into a mailbox, under the name of its id.
    pub(crate) fn put(&self, folder: &str, message: &Value) {
        let below = format!("inbox/{folder}/{}.json", message["id"].as_str().unwrap());
        self.write(&below, message.to_string());
    }

    /// Sets the modification time of a file or folder, relative to the workspace's clock.
    pub(crate) fn set_age(&self, below: &str, age: SignedDuration) {
        let time = SystemTime::from(self.clock.now().checked_sub(age).unwrap());
        File::open(self.path(below)).unwrap().set_modified(time).unwrap();
    }

    /// Sends a message and waits until its files and receipts are written.
    pub(crate) async fn send(&self, outgoing: OutgoingMessage) -> MessageId {
        let outbound = self.workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
        let workspace = self.workspace.clone();
        let deliveries = tokio::spawn(async move { delivery::run(&workspace, outbound).await });
        let accepted = self.workspace.send(outgoing).await.unwrap();
        self.workspace.hub().deliveries().wait_until_settled(accepted.id).await.unwrap();
        self.workspace.hub().deliveries().close_doors();
        deliveries.await.unwrap();
        accepted.id
    }

    /// Returns the bodies of the messages that wait for an agent, in order.
    pub(crate) async fn waiting(&self, who: &str) -> Vec<String> {
        self.part(who, Part::Waiting).await.into_iter().map(|(body, _)| body).collect()
    }

    /// Returns bodies and deliveries of a part of a mailbox.
    pub(crate) async fn part(&self, who: &str, part: Part) -> Vec<(String, Delivery)> {
        let query = MailboxQuery { agent: agent(who), after: 0, limit: 10_000, part };
        let page = self.workspace.hub().mailboxes().page(query).await.unwrap();
        page.items.into_iter().map(|mail| (mail.stored.message.body, mail.delivery)).collect()
    }

    /// Returns every body in the journal, in order of acceptance.
    pub(crate) async fn journal(&self) -> Vec<String> {
        let page = self.workspace.hub().journal().entries(0, 10_000).await.unwrap();
        page.items.into_iter().map(|stored| stored.message.body).collect()
    }

    pub(crate) async fn receipt(&self, id: MessageId) -> Receipt {
        self.workspace.hub().journal().receipt(id).await.unwrap().unwrap().1
    }

    /// Returns the states of a message's deliveries.
    pub(crate) async fn states(&self, id: MessageId) -> Vec<&'static str> {
        self.receipt(id).await.deliveries.iter().map(|delivery| delivery.state.as_str()).collect()
    }

    /// Returns the message with a file's id.
    pub(crate) async fn id_of(&self, native: &str) -> MessageId {
        self.workspace.resolve_id(native).await.unwrap()
    }

    /// Returns paths and reasons of the rejected files, sorted by path.
    pub(crate) async fn rejected_files(&self) -> Vec<(String, String)> {
        let problems = self.workspace.rejected_files().await.unwrap();
        let mut problems: Vec<_> =
            problems.into_iter().map(|problem| (problem.path, problem.reason)).collect();
        problems.sort();
        problems
    }
}

/// Flips the first letter of every `text` in the database below `root`, like a failing disk.
pub(crate) fn damage_database(root: &Path, text: &str) {
    let path = root.join("hub.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let at: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text.as_bytes())).collect();
    assert!(!at.is_empty(), "the database holds '{text}'");
    for at in at {
        bytes[at] ^= 1;
    }
    write_carelessly(&path, bytes);
}

/// Returns the mailbox file of a message of ours.
pub(crate) fn inbox_file(who: &str, id: MessageId) -> String {
    format!("inbox/{who}/{}.json", ids::to_native(id))
}

/// Returns the archive file of a message of ours.
pub(crate) fn archive_file(who: &str, id: MessageId) -> String {
    format!("archive/{who}/{}.json", ids::to_native(id))
}

async fn open(folder: &Path, config: &Config, clock: &Clock) -> Workspace {
    let configure = |hub: &mut HubConfig| hub.clock = clock.clone();
    Workspace::open(folder, config.clone(), configure).await.unwrap()
}
