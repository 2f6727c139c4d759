//! Posting of an answer: it is stored in the lease, journaled, then published as a file.

use std::collections::BTreeMap;

use serde_json::{Map, json};
use switchboard_core::{MessageId, NO_ANSWER, Outcome, error_chain};
use switchboard_hub::{Handoff, HubError, Stored};
use switchboard_sys::files::{Created, Durability};

use super::lease::AnswerLease;
use super::watcher::{AnswerResult, Watcher};
use crate::channels::Post;
use crate::error::ChannelError;
use crate::ids::{file_name, in_file_name};
use crate::postponed::report_outcome;
use crate::translate::{hub_id, set_hub, set_id, to_own_draft, with_folder};
use crate::tree::blocking;
use crate::wire::ChannelMessage;

/// Type of the message that reports a failure.
pub(super) const INCIDENT: &str = "incident";

/// Answer that has been journaled.
struct Journaled {
    seq: i64,
    /// Deliveries that complete when the file is written; `None` if an earlier run journaled the answer.
    leased: Option<Vec<Handoff>>,
}

impl Watcher {
    /// Posts the answer, then marks the message as handled.
    pub(super) async fn finish(
        &self,
        stored: &Stored,
        lease: AnswerLease,
        reply: Option<ChannelMessage>,
        note: &str,
    ) -> Result<AnswerResult, ChannelError> {
        let (lease, refused) = match reply {
            None => (lease, None),
            Some(reply) => match self.post(stored, lease, reply).await? {
                Some(posted) => posted,
                None => return Ok(AnswerResult::Later),
            },
        };
        let refused = refused.map(|reason| format!("{NO_ANSWER}{reason}"));
        self.acknowledge(stored.message.id, refused.as_deref().unwrap_or(note)).await?;
        blocking(move || Ok(lease.complete()?)).await?;
        Ok(AnswerResult::Done)
    }

    /// Posts the answer, or a fallback if the hub rejects it; returns `None` if the lease was lost.
    ///
    /// Also returns the reason if the answer was rejected without a fallback.
    async fn post(
        &self,
        stored: &Stored,
        mut lease: AnswerLease,
        mut reply: ChannelMessage,
    ) -> Result<Option<(AnswerLease, Option<String>)>, ChannelError> {
        let channel = &self.config.channel;
        let own_name = self.channels.own_name().await?;
        let (id, journaled) = loop {
            let Some(written) = self.persist_answer(lease, reply).await? else {
                self.log("another watcher has the answer lease of the message").await;
                return Ok(None);
            };
            (lease, reply) = written;
            let id = hub_id(&reply).unwrap_or_else(|| self.channels.hub().next_id());
            match self.submit(&reply, id, stored.message.id).await {
                Ok(journaled) => break (id, journaled),
                Err(ChannelError::Hub(
                    refused @ (HubError::Unresolved(_)
                    | HubError::BodyTooLarge { .. }
                    | HubError::MetadataTooLarge { .. }),
                )) => {
                    self.log(&format!("{} cannot be posted: {}", reply.id, error_chain(&refused))).await;
                    match self.fallback_reply(reply, &refused) {
                        Some(other) => reply = other,
                        None => return Ok(Some((lease, Some(error_chain(&refused))))),
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let Journaled { seq, leased } = journaled;
        let Some(leased) = leased else {
            // The outbox may be writing the file concurrently; both choose the same name.
            if let Some(stored) = self.channels.hub().journal().message(id).await? {
                self.channels.write_file(&stored.message, seq, channel).await?;
            }
            return Ok(Some((lease, None)));
        };
        // The file is identical at every attempt, so that a successor recognises it.
        set_id(&mut reply, id, Some(seq));
        set_hub(&mut reply, own_name.as_ref());
        match self.publish(lease, reply).await {
            Ok(Some((lease, reply))) => {
                self.channels.record_name(channel, id, &reply.id).await?;
                report_outcome(leased, &Outcome::Delivered).await;
                Ok(Some((lease, None)))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.channels.postpone(id, leased, error).await),
        }
    }

    /// Journals the answer.
    async fn submit(
        &self,
        reply: &ChannelMessage,
        id: MessageId,
        parent: MessageId,
    ) -> Result<Journaled, ChannelError> {
        let hub = self.channels.hub();
        let draft = to_own_draft(reply.clone(), &self.config.channel, id, Some(parent))?;
        match hub.submit_leased(with_folder(draft, self.channels.folder())).await {
            Ok((accepted, leased)) => {
                if let Some(stop) = accepted.stopped {
                    self.log(&format!("{} was stopped: {stop}", reply.id)).await;
                }
                Ok(Journaled { seq: accepted.seq, leased: (!accepted.duplicate).then_some(leased) })
            }
            // An earlier run has journaled the answer, with other settings.
            Err(HubError::Conflict { native_id, first }) if first == id => {
                match hub.journal().message(id).await? {
                    Some(stored) => Ok(Journaled { seq: stored.seq, leased: None }),
                    None => Err(HubError::Conflict { native_id, first }.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the fallback for a rejected answer, so that the asker does not wait in vain.
    ///
    /// If the asker is unreachable, the fallback is the same answer to the whole channel; otherwise it is an incident,
    /// if incidents are enabled.
    fn fallback_reply(&self, reply: ChannelMessage, refused: &HubError) -> Option<ChannelMessage> {
        let is_unreachable = matches!(refused, HubError::Unresolved(_)) && reply.to != "all";
        let mut other = ChannelMessage { id: String::new(), to: "all".to_owned(), ..reply };
        if !is_unreachable {
            if other.kind == INCIDENT || !self.config.incidents {
                return None;
            }
            INCIDENT.clone_into(&mut other.kind);
            other.content.text = format!("{} cannot answer: {}", self.config.agent, error_chain(refused));
        }
        Some(other)
    }

    /// Sets the answer's id and name, and stores the answer in the lease; returns `None` if the lease was lost.
    async fn persist_answer(
        &self,
        mut lease: AnswerLease,
        mut reply: ChannelMessage,
    ) -> Result<Option<(AnswerLease, ChannelMessage)>, ChannelError> {
        if !reply.id.is_empty() {
            return Ok(Some((lease, reply)));
        }
        if hub_id(&reply).is_none() {
            set_id(&mut reply, self.channels.hub().next_id(), None);
        }
        let (this, place, now) =
            (self.channels.clone(), self.config.channel.clone(), self.channels.hub().now());
        let agent = in_file_name(&self.config.agent.clone().into());
        self.channels.resume_order(&place, &agent).await?;
        blocking(move || {
            let dir = this.tree().create_channel(&place)?;
            this.writer().name(&dir, &place, &agent, now, &mut reply)?;
            Ok(lease.store_answer(reply.clone())?.then_some((lease, reply)))
        })
        .await
    }

    /// Creates the answer's file under its stored name, or under another name if that is taken.
    async fn publish(
        &self,
        mut lease: AnswerLease,
        mut reply: ChannelMessage,
    ) -> Result<Option<(AnswerLease, ChannelMessage)>, ChannelError> {
        loop {
            let (this, place) = (self.channels.clone(), self.config.channel.clone());
            let ours = reply.clone();
            let is_there = blocking(move || {
                let (dir, name) = (this.tree().create_channel(&place)?, file_name(&ours.id));
                if dir.create_new(&name, &ours.to_bytes(), Durability::Synced)? == Created::Created {
                    return Ok(true);
                }
                let existing = dir.read(&name, this.config().file_limit).ok().flatten();
                let existing = existing.and_then(|existing| ChannelMessage::parse(&existing.bytes).ok());
                // The existing file may be this answer, posted by an earlier run before it died.
                Ok(existing.is_some_and(|existing| {
                    hub_id(&existing) == hub_id(&ours) && existing.content == ours.content
                }))
            });
            if is_there.await? {
                return Ok(Some((lease, reply)));
            }
            reply.id.clear();
            match self.persist_answer(lease, reply).await? {
                Some(again) => (lease, reply) = again,
                None => return Ok(None),
            }
        }
    }

    /// Builds the answer as a channel message, without an id and time.
    ///
    /// The answer is addressed to the whole channel, which wakes no agent. It is addressed to the asker only if the
    /// asker does not read the channel, so that the answer reaches it elsewhere.
    pub(super) async fn reply(
        &self,
        stored: &Stored,
        request: &ChannelMessage,
        kind: &str,
        text: String,
    ) -> Result<ChannelMessage, ChannelError> {
        let (channel, asker) = (&self.config.channel, &stored.message.from);
        let directory = self.channels.hub().directory().await?;
        let is_reader = directory.channel(channel).any(|reader| reader.id == directory.canonical(asker));
        // An agent that posts in this folder also reads it, even if its hub has not announced that yet.
        let has_posted = !asker.name.is_human()
            && self.is_of_this_folder(&stored.message)
            && asker.realm == stored.message.origin_hub();
        let reads_along = is_reader || has_posted;
        let to = if reads_along { "all".to_owned() } else { asker.to_string() };
        let metadata: Map<_, _> =
            BTreeMap::from([("mode".to_owned(), json!("watcher"))]).into_iter().collect();
        let post = Post {
            to,
            kind: kind.to_owned(),
            in_reply_to: Some(request.id.clone()),
            metadata,
            ..Post::new(directory.canonical(&self.config.agent.clone().into()), channel.clone(), text)
        };
        Ok(post.into_message())
    }
}
