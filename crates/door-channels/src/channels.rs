//! Channels of one shared folder, as the command line and the watchers use them.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use switchboard_core::{AgentId, DeliveryState, Door, Kind, MessageId, Name, Outcome};
use switchboard_hub::{Accepted, Hub};

use crate::config::Config;
use crate::error::ChannelError;
use crate::first_use;
use crate::ids::{agent_of, current_id, file_name, in_file_name, is_agent_id, is_deprecated};
use crate::intake::ChannelState;
use crate::postponed::report_outcome;
use crate::reading::message_ids;
use crate::translate::{native_id, set_hub, set_id, to_own_draft, with_folder};
use crate::tree::{Tree, blocking};
use crate::wire::{ChannelMessage, Content, iso};
use crate::writer::ChannelWriter;

/// Note topic of the recorded identity of each channels root, keyed by its path.
const ROOT: &str = "root";

/// Note topic of the device and inode of a root that has no identity yet, keyed by its path.
const UNMARKED: &str = "unmarked-root";

/// Handle to the channels of one shared folder and their hub. Cloning it is cheap.
#[derive(Clone)]
pub struct Channels {
    inner: Arc<Inner>,
}

struct Inner {
    hub: Hub,
    tree: Tree,
    config: Config,
    /// Identity of the folder, if this hub is linked with others.
    folder: Option<String>,
    writer: ChannelWriter,
    /// State of each channel, keyed by the spelling of its folder name, of which a channel can have several.
    channel_states: Mutex<HashMap<String, ChannelState>>,
    scan_lock: tokio::sync::Mutex<()>,
    /// Files that were reported as tampered with, keyed by channel and id.
    reported: Mutex<HashSet<(Name, String)>>,
}

/// Message that an agent of this hub posts to a channel.
#[derive(Debug, Clone)]
pub struct Post {
    /// Sender.
    pub from: AgentId,
    /// Channel.
    pub channel: Name,
    /// Recipient: an agent, or `all`.
    pub to: String,
    /// Message type, such as `chat` or `task_assign`; any type is accepted.
    pub kind: String,
    /// Text of the message.
    pub text: String,
    /// Code block, if any.
    pub code: Option<String>,
    /// References to files.
    pub artifacts: Vec<String>,
    /// Id of the channel message that this one answers.
    pub in_reply_to: Option<String>,
    /// Further metadata of the message.
    pub metadata: Map<String, Value>,
}

/// Message that has been journaled and written to its file.
#[derive(Debug)]
pub struct PostedMessage {
    /// The message as written to its file.
    pub message: ChannelMessage,
    /// Path of the file.
    pub path: PathBuf,
    /// Result of journaling the message.
    pub accepted: Accepted,
}

impl Post {
    /// Creates a plain chat post to everyone in a channel.
    pub fn new(from: AgentId, channel: Name, text: impl Into<String>) -> Self {
        Self {
            from,
            channel,
            to: "all".to_owned(),
            kind: "chat".to_owned(),
            text: text.into(),
            code: None,
            artifacts: Vec::new(),
            in_reply_to: None,
            metadata: Map::new(),
        }
    }

    /// Converts the post to a message without an id and time, which are set when the file is written.
    pub(crate) fn into_message(self) -> ChannelMessage {
        let mut metadata = self.metadata;
        metadata.entry("mode").or_insert_with(|| "chat".into());
        if let Some(parent) = self.in_reply_to {
            metadata.insert("in_reply_to".into(), parent.into());
        }
        ChannelMessage {
            id: String::new(),
            timestamp: String::new(),
            session_id: self.channel.to_string(),
            from: self.from.to_string(),
            to: current_id(&self.to).to_owned(),
            kind: self.kind,
            content: Content {
                text: self.text,
                code: self.code,
                artifacts: self.artifacts.into_iter().map(Value::String).collect(),
                extra: Map::new(),
            },
            metadata: Some(metadata),
            extra: Map::new(),
        }
    }
}

impl Channels {
    /// Opens the channels below `config.root`, which must exist.
    ///
    /// A root that may be a mount point gets an identity at its first use, in `signals/folder`. From then on, a folder
    /// without that identity is an error: it is the bare mount point, or another disk.
    pub async fn open(config: Config, hub: Hub) -> Result<Self, ChannelError> {
        let key = config.root.display().to_string();
        let known = if config.shared { hub.notes(Door::Channels).get(ROOT, &key).await? } else { None };
        let is_first = config.shared && known.is_none();
        let seen = if is_first { hub.notes(Door::Channels).get(UNMARKED, &key).await? } else { None };
        let (root, shared, linked, noted) = (config.root.clone(), config.shared, config.linked, seen.clone());
        let (mut tree, identity, place) = blocking(move || {
            let expected = known;
            let place = if is_first { Some(first_use::check(&root, noted.as_deref())?) } else { None };
            let tree = Tree::open(&root, shared, expected.as_deref())?;
            // Without an identity the tree is read-only.
            let identity = if shared || linked { tree.identity().ok() } else { None };
            Ok((tree, identity, place))
        })
        .await?;
        if is_first && identity.is_none() && seen != place {
            // Ignore the error: on a full disk this note cannot be written either.
            let _ = hub.notes(Door::Channels).put(UNMARKED, key.clone(), place).await;
        } else if is_first && identity.is_some() {
            match hub.notes(Door::Channels).put(ROOT, key.clone(), identity.clone()).await {
                Ok(()) => {
                    tracing::info!(root = %key, "first use of this channels root: from now on it is known by signals/folder");
                }
                // On a full disk the channels can still be read.
                Err(error) => tree = tree.into_read_only(error.into()),
            }
        }
        let folder = identity.filter(|_| linked);
        let inner = Inner {
            hub,
            tree,
            config,
            folder,
            writer: ChannelWriter::default(),
            channel_states: Mutex::default(),
            scan_lock: tokio::sync::Mutex::default(),
            reported: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Accepts the folder that is now at `config.root`, with any identity.
    pub async fn accept_root(config: &Config, hub: &Hub) -> Result<(), ChannelError> {
        let root = config.root.clone();
        let identity = blocking(move || Tree::open(&root, true, None)?.identity()).await?;
        let key = config.root.display().to_string();
        Ok(hub.notes(Door::Channels).put(ROOT, key, Some(identity)).await?)
    }

    /// Returns the hub.
    pub fn hub(&self) -> &Hub {
        &self.inner.hub
    }

    /// Returns the shared folder.
    pub fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// Checks that the folder is mounted and has the known identity, so that it may be written to.
    pub async fn check_writable(&self) -> Result<(), ChannelError> {
        let tree = self.tree().clone();
        blocking(move || tree.writable_root().map(drop)).await
    }

    /// Returns the settings of the door.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// Returns the identity of the folder, if this hub is linked with others.
    pub(crate) fn folder(&self) -> Option<&str> {
        self.inner.folder.as_deref()
    }

    /// Returns the name of this hub among the linked hubs.
    pub(crate) async fn own_name(&self) -> Result<Option<Name>, ChannelError> {
        Ok(if self.folder().is_some() { self.hub().relay().own_name().await? } else { None })
    }

    pub(crate) fn writer(&self) -> &ChannelWriter {
        &self.inner.writer
    }

    pub(crate) fn channel_states(&self) -> &Mutex<HashMap<String, ChannelState>> {
        &self.inner.channel_states
    }

    pub(crate) fn scan_lock(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.scan_lock
    }

    pub(crate) fn reported(&self) -> &Mutex<HashSet<(Name, String)>> {
        &self.inner.reported
    }

    /// Registers the agents of the configured watchers as readers of their channels. From then on messages to these
    /// agents are queued.
    pub async fn register_watchers(&self) -> Result<(), ChannelError> {
        for watcher in &self.config().watchers {
            self.join(&watcher.agent.clone().into(), &watcher.channel).await?;
        }
        Ok(())
    }

    /// Posts a message to its channel. On return the message is in the journal and its file is on disk.
    ///
    /// The message is journaled first, and the file names its journal entry. If the file cannot be written, the error
    /// is [`ChannelError::NotWritten`], and the channels door of any process writes the file later. The same happens if
    /// this process dies between the two steps.
    pub async fn post(&self, post: Post) -> Result<PostedMessage, ChannelError> {
        let mut post = self.validate(post).await?;
        let channel = post.channel.clone();
        // Check before journaling, so that nothing is accepted while the folder is not mounted.
        self.check_writable().await?;
        let parent = match &post.in_reply_to {
            Some(id) => Some(self.find(&channel, id).await?),
            None => None,
        };
        self.join(&post.from, &channel).await?;
        // Use the journal's spelling of the sender, so that the file is recognised as that of this message.
        post.from = self.hub().directory().await?.canonical(&post.from);
        let agent = in_file_name(&post.from);
        self.resume_order(&channel, &agent).await?;
        let mut message = post.into_message();
        let (id, now) = (self.hub().next_id(), self.hub().now());
        message.timestamp = iso(now);
        let draft = to_own_draft(message.clone(), &channel, id, parent)?;
        let own_name = self.own_name().await?;
        let (mut accepted, leased) = self.hub().submit_leased(with_folder(draft, self.folder())).await?;
        set_id(&mut message, id, Some(accepted.seq));
        set_hub(&mut message, own_name.as_ref());
        let (this, place) = (self.clone(), channel.clone());
        let written = blocking(move || {
            let dir = this.tree().create_channel(&place)?;
            this.writer().post(&dir, &place, &agent, now, &mut message)?;
            let path = dir.path().join(file_name(&message.id));
            Ok((message, path))
        });
        let (message, path) = match written.await {
            Ok(written) => written,
            Err(error) => return Err(self.postpone(id, leased, error).await),
        };
        // The file is written, so neither error fails the post: the name and the outcome can be recovered from the
        // file.
        if let Err(error) = self.record_name(&channel, id, &message.id).await {
            tracing::warn!(error = %error, "cannot save the name of a message file");
        } else {
            let ids: HashSet<_> = leased.iter().map(|handoff| handoff.delivery.id).collect();
            report_outcome(leased, &Outcome::Delivered).await;
            for delivery in accepted.deliveries.iter_mut().filter(|queued| ids.contains(&queued.id)) {
                (delivery.state, delivery.note) = (DeliveryState::Delivered, None);
            }
        }
        Ok(PostedMessage { message, path, accepted })
    }

    /// Makes an agent's next message sort after its earlier ones.
    ///
    /// This holds even if another process wrote the earlier ones and the clock was set back since. Returns early if the
    /// clock was not set back.
    pub(crate) async fn resume_order(&self, channel: &Name, agent: &str) -> Result<(), ChannelError> {
        if self.writer().has_posted(channel, agent) {
            return Ok(());
        }
        let newest = self.hub().journal().newest(1).await?.items.pop();
        if newest.is_none_or(|newest| newest.accepted_at <= self.hub().now()) {
            return Ok(());
        }
        let (this, channel, agent) = (self.clone(), channel.clone(), agent.to_owned());
        blocking(move || {
            let Some(dir) = this.tree().channel(&channel)? else { return Ok(()) };
            let own = message_ids(&dir)?.into_iter().filter(|id| agent_of(id) == Some(agent.as_str()));
            if let Some(last) = own.max() {
                this.writer().resume_after(&channel, &agent, &last);
            }
            Ok(())
        })
        .await
    }

    /// Records a message's id in the channel. Replies then find the message, and its file is not ingested as new.
    pub(crate) async fn record_name(
        &self,
        channel: &Name,
        id: MessageId,
        native: &str,
    ) -> Result<(), ChannelError> {
        self.note_known(channel, native);
        self.hub().native_ids().bind(id, native_id(channel, native)).await?;
        Ok(())
    }

    /// Validates a post before anything is written, because a file in a channel is never removed.
    async fn validate(&self, mut post: Post) -> Result<Post, ChannelError> {
        let field = |field, problem: String| ChannelError::Field { field, problem };
        let name = post.from.to_string();
        if is_deprecated(&name) {
            tracing::warn!("the agent id '{name}' is deprecated; posting as '{}'", current_id(&name));
            post.from =
                current_id(&name).parse().map_err(|_| field("agent", "is not a valid name".into()))?;
        }
        if is_deprecated(&post.to) {
            tracing::warn!("the agent id '{}' is deprecated; posting to '{}'", post.to, current_id(&post.to));
        }
        if post.from.realm.is_some() || !is_agent_id(&post.from.to_string()) {
            let problem = format!(
                "is '{}', but an agent id of a channel is a letter, then letters, digits, '_' and '-'",
                post.from
            );
            return Err(field("agent", problem));
        }
        if let Err(error) = Kind::parse(&post.kind) {
            return Err(field("type", format!("is refused: {error}")));
        }
        if post.text.is_empty() && post.code.is_none() {
            return Err(field("text", "is empty; pass a text with --text".into()));
        }
        let limit = self.hub().config().body_limit;
        if post.text.len() > limit {
            let problem = format!(
                "has {} bytes and the limit is {limit}; put the content into a file and name it with --artifact",
                post.text.len()
            );
            return Err(field("text", problem));
        }
        let to = crate::translate::recipient(&post.clone().into_message(), &post.channel)?;
        // Within a channel any agent can be addressed; a recipient behind another door must be known.
        if let switchboard_core::Address::Agent(agent) = &to
            && agent.realm.is_none()
        {
            return Ok(post);
        }
        let directory = self.hub().directory().await?;
        match switchboard_core::resolve(&to, &post.from, &directory) {
            Err(switchboard_core::ResolveError::EmptyGroup {
                group: switchboard_core::GroupId::Channel(_),
            })
            | Ok(_) => Ok(post),
            Err(error) => Err(switchboard_hub::HubError::from(error).into()),
        }
    }

    /// Finds a message by its id in the channel, or by its id in the journal.
    pub async fn find(&self, channel: &Name, id: &str) -> Result<MessageId, ChannelError> {
        if let Some(id) = self.known_message(channel, id).await? {
            return Ok(id);
        }
        // The message's file may be new and not ingested yet.
        self.scan_channel(channel).await?;
        let found = self.known_message(channel, id).await?;
        found.ok_or_else(|| ChannelError::UnknownMessage { id: id.to_owned(), channel: channel.clone() })
    }

    pub(crate) async fn known_message(
        &self,
        channel: &Name,
        id: &str,
    ) -> Result<Option<MessageId>, ChannelError> {
        if let Ok(id) = id.parse::<MessageId>()
            && self.hub().journal().message(id).await?.is_some()
        {
            return Ok(Some(id));
        }
        let named = self.hub().native_ids().find(None, id).await?;
        let in_channel = named.iter().find(|(scope, _)| scope.eq_ignore_ascii_case(channel.as_str()));
        Ok(in_channel.or(named.first()).map(|(_, id)| *id))
    }
}
