//! What waits for a watcher: the agent's mail in its channel, and what mentions it in somebody else's.

use switchboard_core::{Address, AgentId, Delivery, DeliveryState, Door, Message, MessageId, Route};
use switchboard_hub::{HubError, Mail, MailboxQuery, Part, Stored, is_notice};

use super::mention::{begins_with, is_mentioned};
use super::watcher::{Memory, Watcher};
use crate::error::ChannelError;

/// How many messages are read from the mailbox at a time.
const PAGE: usize = 200;

/// After how many messages of the journal it is written down how far a watcher has looked.
const SELDOM: i64 = 64;

/// Under this topic the hub remembers how far each watcher has looked for mentions.
const CURSOR: &str = "mentions";

impl Watcher {
    /// What was delivered to the agent in this channel and it is not done with, oldest first.
    pub(super) async fn waiting(&self, agent: AgentId) -> Result<Vec<Mail>, ChannelError> {
        let route = Route::Channel { channel: self.config.channel.clone() };
        let (mut after, mut found) = (0, Vec::new());
        loop {
            let query = MailboxQuery { agent: agent.clone(), after, limit: PAGE, part: Part::Waiting };
            let page = self.channels.hub().mailbox(query).await?;
            after = page.items.last().map_or(after, |mail| mail.stored.seq);
            found.extend(page.items.into_iter().filter(|mail| mail.delivery.route == route));
            if !page.more {
                return Ok(found);
            }
        }
    }

    /// Messages of the channel to somebody else that mention the agent, up to `last` in the journal.
    ///
    /// They are nobody's mail but their recipient's, so the watcher remembers how far it has looked.
    pub(super) async fn mentions(&self, memory: &mut Memory, last: i64) -> Result<Vec<Stored>, ChannelError> {
        let hub = self.channels.hub();
        let route = Route::Channel { channel: self.config.channel.clone() };
        let mut found = Vec::new();
        let mut after = if let Some((scanned, _)) = memory.scanned {
            scanned
        } else {
            let cursor = self.cursor().await?;
            if cursor.is_none() {
                // It begins to listen now.
                self.set_cursor(last).await?;
            }
            let cursor = cursor.unwrap_or(last);
            memory.scanned.insert((cursor, cursor)).0
        };
        while after < last {
            let page = match hub.journal(after, PAGE).await {
                Err(HubError::CursorExpired { oldest, .. }) => {
                    after = oldest - 1;
                    continue;
                }
                page => page?,
            };
            let Some(end) = page.items.last().map(|stored| stored.seq) else { break };
            after = end;
            for stored in page.items {
                let Message { to, body, origin, id, .. } = &stored.message;
                let is_to_another = matches!(to, Address::Agent(to) if to.name != self.config.agent);
                if origin.route.as_ref() == Some(&route)
                    && is_to_another
                    && is_mentioned(body, self.config.agent.as_str())
                    && !self.is_stopped(*id).await?
                {
                    found.push(stored);
                }
            }
        }
        Ok(found)
    }

    /// Whether a rule against storms stopped a message: then it wakes nobody.
    async fn is_stopped(&self, id: MessageId) -> Result<bool, ChannelError> {
        let receipt = self.channels.hub().receipt(id).await?;
        let refused = |delivery: &Delivery| delivery.state == DeliveryState::Refused;
        Ok(receipt.is_some_and(|(_, receipt)| receipt.deliveries.iter().any(refused)))
    }

    /// Notes that everything up to here is done with. What is looked at again after a restart finds its answer,
    /// so that it need not be written down each time.
    pub(super) async fn scanned(&self, memory: &mut Memory, last: i64) -> Result<(), ChannelError> {
        let written = memory.scanned.map_or(0, |(_, written)| written);
        let is_far = last - written >= SELDOM;
        if is_far {
            self.set_cursor(last).await?;
        }
        memory.scanned = Some((last, if is_far { last } else { written }));
        Ok(())
    }

    fn cursor_key(&self) -> String {
        format!("{}/{}", self.config.channel, self.config.agent).to_ascii_lowercase()
    }

    async fn cursor(&self) -> Result<Option<i64>, ChannelError> {
        let (notes, key) = (self.channels.hub().notes(Door::Channels, CURSOR).await?, self.cursor_key());
        Ok(notes.iter().find(|(noted, _)| *noted == key).and_then(|(_, cursor)| cursor.parse().ok()))
    }

    async fn set_cursor(&self, cursor: i64) -> Result<(), ChannelError> {
        let value = Some(cursor.to_string());
        Ok(self.channels.hub().note(Door::Channels, CURSOR, self.cursor_key(), value).await?)
    }

    /// Why a message is not answered; nothing where it is.
    pub(super) async fn verdict(&self, stored: &Stored) -> Result<Option<&'static str>, ChannelError> {
        let message = &stored.message;
        let (hub, config) = (self.channels.hub(), &self.config);
        let directory = hub.directory().await?;
        let agent = directory.canonical(&config.agent.clone().into());
        if directory.canonical(&message.from) == agent {
            return Ok(Some("its own"));
        }
        if is_notice(message) {
            return Ok(Some("read"));
        }
        // What is forwarded to the agent is its mail, whoever it was written to.
        let end = |to| directory.canonical(directory.links().end_of(to).unwrap_or(to));
        let is_addressed = matches!(&message.to, Address::Agent(to) if end(to) == agent);
        let name = config.agent.as_str();
        let is_for_us = is_addressed
            || is_mentioned(&message.body, name)
            || (config.starts_with && begins_with(&message.body, name));
        if !is_for_us {
            return Ok(Some("read"));
        }
        if hub.now().duration_since(message.sent_at) > config.max_age {
            return Ok(Some("left unanswered: too old"));
        }
        let Some(reply) = self.own_reply(stored).await? else { return Ok(None) };
        // One without a file was cut off on its way into the channel.
        let named = hub.native_in(Door::Channels, config.channel.as_str(), reply.message.id).await?;
        Ok(named.is_some().then_some("answered"))
    }

    /// The answer that the journal has from the agent itself.
    pub(super) async fn own_reply(&self, stored: &Stored) -> Result<Option<Stored>, ChannelError> {
        let hub = self.channels.hub();
        let directory = hub.directory().await?;
        let agent = directory.canonical(&self.config.agent.clone().into());
        let replies = hub.replies(stored.message.id, PAGE).await?;
        let is_ours = |reply: &Stored| directory.canonical(&reply.message.from) == agent;
        Ok(replies.items.into_iter().find(is_ours))
    }
}
