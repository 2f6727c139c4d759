//! Test fixture: channels in a temporary folder, with files of other programs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use switchboard_core::{
    Address, AgentId, Delivery, Door, Message, MessageId, Name, NativeId, POSTED_IN, Route,
};
use switchboard_hub::{Draft, Hub, HubConfig, Outbound, Registration, RelayedMessage, Stored};
use switchboard_sys::clock::Clock;
use tempfile::TempDir;

use crate::channels::{Channels, Post};
use crate::config::Config;
use crate::wire::ChannelMessage;

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Default time of dropped files.
const TIME: &str = "2026-01-11T16:33:15.123Z";

/// Channels with their own hub.
pub(crate) struct TestChannels {
    pub(crate) channels: Channels,
    pub(crate) clock: Clock,
    pub(crate) folder: TempDir,
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn agent(text: &str) -> AgentId {
    text.parse().unwrap()
}

/// Builds a message file as another program writes it.
pub(crate) fn file(id: &str, from: &str, to: &str, text: &str) -> Value {
    json!({
        "id": id, "timestamp": TIME, "session_id": "general", "from": from, "to": to,
        "type": "chat", "content": { "text": text, "code": null, "artifacts": [] }, "metadata": { "mode": "chat" },
    })
}

/// Writes as a careless program does: in place, over an existing file.
#[expect(clippy::disallowed_methods, reason = "stands for a program that takes no care")]
pub(crate) fn write_carelessly(path: &Path, bytes: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Awaits a future with a timeout.
pub(crate) async fn with_timeout<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("it should have happened by now")
}

impl TestChannels {
    /// Creates channels; these agents have mailboxes.
    pub(crate) async fn new(agents: &[&str]) -> Self {
        let (folder, clock) = (TempDir::new().unwrap(), Clock::manual(Clock::system().now()));
        let channels = open(&folder.path().join("hub"), folder.path(), &clock, |_| ()).await;
        for agent in agents {
            channels.hub().agents().register(Registration::mailbox(name(agent))).await.unwrap();
        }
        Self { channels, clock, folder }
    }

    /// Opens the same folder as another process of the hub, with other settings.
    pub(crate) async fn open_another(&self, configure: impl FnOnce(&mut Config)) -> Channels {
        open(&self.folder.path().join("hub"), self.folder.path(), &self.clock, configure).await
    }

    /// Opens the same folder as another hub.
    pub(crate) async fn elsewhere(&self, configure: impl FnOnce(&mut Config)) -> Channels {
        open(&self.folder.path().join("elsewhere"), self.folder.path(), &self.clock, configure).await
    }

    /// Opens the folder as two linked hubs, `lab` and `office`.
    pub(crate) async fn lab_and_office(&self) -> (Channels, Channels) {
        let lab = self.elsewhere(|config| config.linked = true).await;
        let office = self.open_another(|config| config.linked = true).await;
        lab.hub().relay().set_own_name(name("lab")).await.unwrap();
        office.hub().relay().set_own_name(name("office")).await.unwrap();
        (lab, office)
    }

    /// Replaces the shared folder with its bare mount point, as after an unmount.
    #[expect(clippy::disallowed_methods, reason = "stands in for umount(8)")]
    pub(crate) fn unmount(&self) {
        let (shared, disk) = (self.path(""), self.folder.path().join("disk"));
        std::fs::rename(&shared, disk).unwrap();
        std::fs::create_dir(shared).unwrap();
    }

    /// Mounts the shared folder again. The mount point must be empty.
    #[expect(clippy::disallowed_methods, reason = "stands in for mount(8)")]
    pub(crate) fn mount(&self) {
        let (shared, disk) = (self.path(""), self.folder.path().join("disk"));
        std::fs::remove_dir(&shared).expect("nothing was written below the mount point");
        std::fs::rename(disk, shared).unwrap();
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join("shared").join(below)
    }

    /// Drops a message file into `general`, written now unless it says otherwise.
    pub(crate) fn drop_file(&self, message: &Value) {
        let mut message = message.clone();
        if message["timestamp"] == TIME {
            message["timestamp"] = crate::wire::iso(self.channels.hub().now()).into();
        }
        let id = message["id"].as_str().unwrap();
        write_carelessly(&self.path(&format!("channels/general/{id}.json")), message.to_string());
    }

    pub(crate) async fn post(&self, from: &str, to: &str, text: &str) -> ChannelMessage {
        let post = Post { to: to.into(), ..Post::new(agent(from), name("general"), text) };
        self.channels.post(post).await.unwrap().message
    }

    /// Returns the message with this id in `general`.
    pub(crate) async fn stored(&self, native: &str) -> Stored {
        stored(&self.channels, native).await.unwrap_or_else(|| panic!("{native} is in the journal"))
    }

    pub(crate) async fn deliveries(&self, id: MessageId) -> Vec<Delivery> {
        self.channels.hub().journal().receipt(id).await.unwrap().unwrap().1.deliveries
    }

    /// Returns all texts of `general`, in order.
    pub(crate) async fn texts(&self) -> Vec<String> {
        let reading = self.channels.read(&name("general"), None).await.unwrap();
        reading.messages.into_iter().map(|message| message.content.text).collect()
    }

    pub(crate) async fn outbound(&self) -> Outbound {
        self.channels.hub().deliveries().open_door(Door::Channels).await.unwrap()
    }
}

pub(crate) async fn stored(channels: &Channels, native: &str) -> Option<Stored> {
    let named = channels.hub().native_ids().find(Some(Door::Channels), native).await.unwrap();
    let (_, id) = named.first()?;
    channels.hub().journal().message(*id).await.unwrap()
}

/// Builds a post at `lab` to one agent as the link delivers it; an agent of `lab` is unknown to the receiving
/// hub.
pub(crate) fn post_from_lab(message: Message) -> RelayedMessage {
    let RelayedMessage { draft, thread, via } = as_from_lab(message);
    let mut metadata = draft.metadata;
    metadata.insert(POSTED_IN.to_owned(), json!("general"));
    let is_theirs = matches!(&draft.to, Address::Agent(to) if to.realm.is_some());
    RelayedMessage { draft: Draft { metadata, restored: is_theirs.then(Vec::new), ..draft }, thread, via }
}

/// Builds a message as the link delivers it from the hub `lab`.
pub(crate) fn as_from_lab(message: Message) -> RelayedMessage {
    let lab = name("lab");
    let draft = Draft {
        id: message.id,
        from: AgentId { name: message.from.name, realm: Some(lab.clone()) },
        to: message.to,
        kind: message.kind,
        body: message.body,
        in_reply_to: message.in_reply_to,
        sent_at: message.sent_at,
        expires_at: None,
        metadata: message.metadata,
        native: NativeId { door: Door::Nats, scope: "lab".into(), id: message.id.to_string() },
        key: None,
        native_is_id: true,
        verified: message.origin.verified,
        route: Some(Route::Hub { hub: lab }),
        signed: None,
        allow_unregistered: false,
        restored: None,
    };
    RelayedMessage { draft, thread: message.thread, via: message.via }
}

async fn open(hub: &Path, folder: &Path, clock: &Clock, configure: impl FnOnce(&mut Config)) -> Channels {
    let root = folder.join("shared");
    std::fs::create_dir_all(hub).unwrap();
    std::fs::create_dir_all(&root).unwrap();
    let hub = Hub::open(HubConfig { clock: clock.clone(), ..HubConfig::new(hub) }).await.unwrap();
    let mut config = Config::new(root);
    configure(&mut config);
    Channels::open(config, hub).await.unwrap()
}
