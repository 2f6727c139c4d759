//! How an answer gets into the channel: written down, journaled, put up, in that order.

use std::collections::BTreeMap;

use serde_json::{Map, json};
use switchboard_core::{MessageId, NO_ANSWER, Outcome};
use switchboard_hub::{Handoff, HubError, Stored};
use switchboard_sys::files::{Created, Durability};

use super::lease::AnswerLease;
use super::watcher::{AnswerResult, Watcher};
use crate::channels::Post;
use crate::error::{ChannelError, describe};
use crate::ids::{file_name, in_file_name};
use crate::postponed::report_outcome;
use crate::translate::{hub_id, set_hub, set_id, to_own_draft, with_folder};
use crate::tree::blocking;
use crate::wire::ChannelMessage;

/// The type of a message that says what went wrong.
pub(super) const INCIDENT: &str = "incident";

/// An answer that is in the journal.
struct Journaled {
    seq: i64,
    /// The deliveries that its file makes; nothing where an earlier run journaled it.
    leased: Option<Vec<Handoff>>,
}

impl Watcher {
    /// Posts the answer and marks the message as done, in that order.
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

    /// Posts the answer, or what takes its place where the hub does not take it; nothing where the claim was lost. The
    /// reason comes along where the answer was refused and nothing took its place.
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
                self.log("somebody else has taken the message over").await;
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
                    self.log(&format!("{} cannot be posted: {}", reply.id, describe(&refused))).await;
                    match self.fallback_reply(reply, &refused) {
                        Some(other) => reply = other,
                        None => return Ok(Some((lease, Some(describe(&refused))))),
                    }
                }
                Err(error) => return Err(error),
            }
        };
        let Journaled { seq, leased } = journaled;
        let Some(leased) = leased else {
            // The outbox may be writing the file now. Both choose the same name for it.
            if let Some(stored) = self.channels.hub().message(id).await? {
                self.channels.write_file(&stored.message, seq, channel).await?;
            }
            return Ok(Some((lease, None)));
        };
        // The same at every try, so that whoever takes over finds the very file.
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
                    self.log(&format!("{} goes no further: {stop}", reply.id)).await;
                }
                Ok(Journaled { seq: accepted.seq, leased: (!accepted.duplicate).then_some(leased) })
            }
            // Journaled by an earlier run, under other settings.
            Err(HubError::Conflict { native_id, first }) if first == id => match hub.message(id).await? {
                Some(stored) => Ok(Journaled { seq: stored.seq, leased: None }),
                None => Err(HubError::Conflict { native_id, first }.into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// What is posted where the hub does not take an answer, so that nobody waits for it: the same for everyone in the
    /// channel where the asker cannot be reached, and otherwise an incident, where those are posted.
    fn fallback_reply(&self, reply: ChannelMessage, refused: &HubError) -> Option<ChannelMessage> {
        let is_unreachable = matches!(refused, HubError::Unresolved(_)) && reply.to != "all";
        let mut other = ChannelMessage { id: String::new(), to: "all".to_owned(), ..reply };
        if !is_unreachable {
            if other.kind == INCIDENT || !self.config.incidents {
                return None;
            }
            INCIDENT.clone_into(&mut other.kind);
            other.content.text = format!("{} could not answer: {}", self.config.agent, describe(refused));
        }
        Some(other)
    }

    /// Gives the answer an id and a name and writes it into the claim; nothing where the claim was lost.
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

    /// Puts the answer into the channel under the name that the claim has for it, or under another where
    /// somebody has taken that.
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
                let there = dir.read(&name, this.config().file_limit).ok().flatten();
                let there = there.and_then(|there| ChannelMessage::parse(&there.bytes).ok());
                // The same was posted before its poster died.
                Ok(there
                    .is_some_and(|there| hub_id(&there) == hub_id(&ours) && there.content == ours.content))
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

    /// The answer as a message of the channel, but for its id and time.
    ///
    /// It is for everyone in the channel, which wakes nobody; only an asker that does not read the channel is
    /// named, so that the answer finds its way to wherever it reads.
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
        // Whoever posts in this folder reads it, also where the hub that knows has not told so yet.
        let has_posted = !asker.name.is_human()
            && self.is_of_this_folder(&stored.message)
            && asker.realm == stored.message.other_hub();
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
