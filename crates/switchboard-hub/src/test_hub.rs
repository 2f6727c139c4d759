//! A hub in a folder of its own, for the tests of this crate.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use switchboard_core::{AgentId, Delivery, DeliveryState, Door, Kind, MessageId, Name, NativeId};
use switchboard_sys::clock::Clock;
use tempfile::TempDir;

use crate::{Accepted, Draft, Hub, HubConfig, MailboxQuery, Part, Registration, Stored};

/// A hub with a manual clock, and its folder.
pub(crate) struct TestHub {
    pub(crate) hub: Hub,
    pub(crate) clock: Clock,
    folder: TempDir,
}

impl TestHub {
    /// A hub that knows these agents, each reached through its mailbox.
    pub(crate) async fn with(agents: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = Clock::manual(noon());
        let hub = open(folder.path(), &clock).await;
        for agent in agents {
            hub.agents().register(Registration::mailbox(name(agent))).await.expect("registered");
        }
        Self { hub, clock, folder }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("hub.db")
    }

    /// Another hub on the same folder, by the same clock: what a second process would open.
    pub(crate) async fn open_another(&self) -> Hub {
        open(self.path(), &self.clock).await
    }

    /// Opens the database as another program would.
    pub(crate) fn sql(&self) -> Connection {
        let connection = Connection::open(self.database()).expect("the database opens");
        connection.busy_timeout(Duration::from_secs(30)).expect("set");
        connection
    }

    /// Closes the hub, so that everything is in `hub.db` alone, and keeps the folder.
    pub(crate) async fn close(self) -> (TempDir, Clock) {
        self.hub.shut_down().await;
        (self.folder, self.clock)
    }

    /// A message from one agent to an address, ready to be submitted.
    pub(crate) fn draft(&self, from: &str, to: &str, body: &str) -> Draft {
        draft(&self.hub, from, to, body)
    }

    pub(crate) async fn send(&self, from: &str, to: &str, body: &str) -> Accepted {
        self.hub.submit(self.draft(from, to, body)).await.expect("accepted")
    }

    pub(crate) async fn reply(&self, from: &str, to: &str, parent: MessageId) -> Accepted {
        let draft = Draft { in_reply_to: Some(parent), ..self.draft(from, to, "re") };
        self.hub.submit(draft).await.expect("accepted")
    }

    /// Opens the workspace door and reports everything that waits for it as delivered.
    pub(crate) async fn deliver_all(&self) {
        let mut door = self.hub.deliveries().open_door(Door::Workspace).await.expect("opened");
        let pending = "SELECT count(*) FROM deliveries WHERE (state < 2 OR state = 6)";
        // Expired messages are not handed over and need not wait for the next poll.
        self.hub.deliveries().expire_due().await.expect("looked");
        while self.sql().query_row(pending, [], |row| row.get::<_, i64>(0)).expect("counted") > 0 {
            for handoff in with_timeout(door.next(256)).await {
                handoff.report(switchboard_core::Outcome::Delivered).await.expect("reported");
            }
        }
    }

    pub(crate) async fn stored(&self, id: MessageId) -> Stored {
        self.hub.journal().message(id).await.expect("read").expect("it is there")
    }

    pub(crate) async fn deliveries(&self, id: MessageId) -> Vec<Delivery> {
        self.hub.journal().receipt(id).await.expect("read").expect("it is there").1.deliveries
    }

    /// The state of a message's only delivery.
    pub(crate) async fn state(&self, id: MessageId) -> DeliveryState {
        let deliveries = self.deliveries(id).await;
        assert_eq!(deliveries.len(), 1, "{deliveries:?}");
        deliveries[0].state
    }

    pub(crate) async fn mailbox(&self, agent: &str, part: Part) -> Vec<String> {
        let query = MailboxQuery { agent: agent_id(agent), after: 0, limit: 1000, part };
        let page = self.hub.mailboxes().page(query).await.expect("read");
        page.items.into_iter().map(|mail| mail.stored.message.body).collect()
    }
}

pub(crate) async fn open(folder: &Path, clock: &Clock) -> Hub {
    Hub::open(config(folder, clock)).await.expect("the hub opens")
}

pub(crate) fn config(folder: &Path, clock: &Clock) -> HubConfig {
    HubConfig { clock: clock.clone(), ..HubConfig::new(folder) }
}

/// A message whose native id is its own id, in the scope of its recipient.
pub(crate) fn draft(hub: &Hub, from: &str, to: &str, body: &str) -> Draft {
    let address = to.parse().expect("an address");
    let draft = hub.draft(Door::Workspace, agent_id(from), address, Kind::delegate_task(), body);
    let native = NativeId { scope: to.to_owned(), ..draft.native };
    Draft { native, native_is_id: false, ..draft }
}

/// The whole journal, read in pages.
pub(crate) async fn journal(hub: &Hub) -> Vec<Stored> {
    let mut all: Vec<Stored> = Vec::new();
    loop {
        let after = all.last().map_or(0, |stored| stored.seq);
        let page = hub.journal().entries(after, 100).await.expect("read");
        all.extend(page.items);
        if !page.more {
            return all;
        }
    }
}

pub(crate) async fn bodies(hub: &Hub) -> Vec<String> {
    journal(hub).await.into_iter().map(|stored| stored.message.body).collect()
}

/// Waits for a future that must complete; far longer than needed, so that only a hang fails.
pub(crate) async fn with_timeout<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_mins(1), future).await.expect("it happens soon")
}

/// An owner on this host whose process has ended.
pub(crate) async fn dead_owner() -> String {
    let mut child = switchboard_sys::process::Spawn::new("true").spawn().expect("`true` starts");
    child.wait().await.expect("`true` ends");
    format!("{}/{}/1", switchboard_sys::process_identity::ProcessIdentity::this_process().host(), child.pid())
}

pub(crate) fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("a time")
}

pub(crate) fn seconds(seconds: i64) -> SignedDuration {
    SignedDuration::from_secs(seconds)
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("a name")
}

pub(crate) fn agent_id(text: &str) -> AgentId {
    text.parse().expect("an agent")
}
