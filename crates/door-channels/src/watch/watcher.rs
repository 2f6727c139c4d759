//! Main loop of one watcher ("Response Flow").

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::{AgentId, Door, Message, MessageId, NO_ANSWER, error_chain};
use switchboard_hub::{DisplayMode, HubError, Stored, fresh_mark};
use switchboard_sys::files::Dir;
use tokio_util::sync::CancellationToken;

use super::breaker::Breaker;
use super::lease::{self, Acquisition, AnswerLease};
use super::posting::INCIDENT;
use super::program::{ProgramError, run_program};
use super::prompt::Prompt;
use super::{WatcherConfig, answer, log};
use crate::channels::Channels;
use crate::error::ChannelError;
use crate::presence::HeartbeatWriter;
use crate::translate::to_file;
use crate::tree::blocking;
use crate::wire::ChannelMessage;

/// Time by which a lease exceeds the program's timeout, to store and post the answer.
const GRACE: SignedDuration = SignedDuration::from_secs(60);

/// Delay before a message is retried, and after errors of files or the journal.
const PAUSE: Duration = Duration::from_secs(2);

/// Note of the acknowledgement of an answered message.
pub(super) const ANSWERED: &str = "answered";

/// Maximum size of a role or memory file.
const TEXT_LIMIT: u64 = 256 << 10;

/// A running watcher.
pub(super) struct Watcher {
    pub(super) channels: Channels,
    pub(super) config: WatcherConfig,
    heartbeat_writer: HeartbeatWriter,
    /// Token that distinguishes this watcher's leases from those of all other watchers.
    token: String,
}

/// State of a watcher between messages.
#[derive(Default)]
pub(super) struct WatcherState {
    breaker: Breaker,
    /// Messages that wait because their sender has reached the rate limit.
    rate_limited: HashSet<MessageId>,
    /// Number of attempts per message.
    attempts: HashMap<MessageId, u32>,
    /// Answers that could not be posted yet; the program is not run again for them.
    unposted: HashMap<MessageId, String>,
    /// True once the backlog from before the start was processed.
    is_caught_up: bool,
    /// Newest mailbox message and journal sequence of the last complete round.
    looked: Option<(Option<i64>, i64)>,
    /// True if the last round found a message to the agent whose file was still pending.
    pub(super) is_awaiting: bool,
    /// Journal sequence up to which mentions are handled, and the sequence that was last saved.
    pub(super) scanned: Option<(i64, i64)>,
}

/// Result of processing one message.
pub(super) enum AnswerResult {
    /// The message is handled.
    Done,
    /// The message is to be answered later.
    Later,
    /// The message's file has no name yet, because its sender is about to write it.
    NoFile,
}

impl Watcher {
    pub(super) fn new(channels: Channels, config: WatcherConfig, heartbeat_writer: HeartbeatWriter) -> Self {
        Self { channels, config, heartbeat_writer, token: format!("{:016x}", fastrand::u64(..)) }
    }

    /// Answers messages until `shutdown`. A running program is then killed, and its message is answered after the
    /// restart.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        self.log(&format!("watching #{}", self.config.channel)).await;
        shutdown.run_until_cancelled(Box::pin(self.watch())).await;
        self.log("stopped").await;
    }

    async fn watch(&self) {
        let mut changes = self.channels.hub().changes();
        let mut state = WatcherState::default();
        let mut is_told = false;
        loop {
            let looked = self.process_queue(&mut state).await;
            is_told &= looked.as_ref().is_err_and(ChannelError::is_unmounted);
            let pause = match looked {
                Ok(pause) => pause,
                // The log is in the same unmounted folder, so nothing can be logged there.
                Err(error) if error.is_unmounted() => {
                    if !is_told {
                        let agent = &self.config.agent;
                        tracing::warn!(%agent, error = %error_chain(&error), "waiting for the channels folder");
                        is_told = true;
                    }
                    Some(PAUSE)
                }
                Err(error) => {
                    self.log(&format!("error: {}", error_chain(&error))).await;
                    Some(PAUSE)
                }
            };
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => changes.next().await,
            }
        }
    }

    /// Processes the queue; returns the delay until the next round, or `None` if everything is done.
    async fn process_queue(&self, state: &mut WatcherState) -> Result<Option<Duration>, ChannelError> {
        let hub = self.channels.hub();
        let agent = AgentId::from(self.config.agent.clone());
        if !state.is_caught_up {
            // Answers of an earlier run may be in the channel but not yet in the journal.
            self.channels.scan_channel(&self.config.channel).await?;
            let (tree, name, now) = (self.channels.tree().clone(), self.config.agent.clone(), hub.now());
            blocking(move || Ok(lease::clear_old(&tree.lease_folder(&name)?, now)?)).await?;
        }
        let last = hub.journal().newest(1).await?.items.last().map_or(0, |stored| stored.seq);
        let latest = (hub.mailboxes().newest_waiting(agent.clone()).await?, last);
        if state.is_caught_up && state.looked == Some(latest) {
            return Ok(None);
        }
        let mut found: Vec<Stored> = self.waiting(agent).await?.into_iter().map(|mail| mail.stored).collect();
        state.is_awaiting = false;
        found.extend(self.mentions(state, last).await?);
        found.sort_by_key(|stored| stored.seq);
        let mut waiting = Vec::new();
        for stored in found {
            if is_of_the_person(&stored.message) {
                state.breaker.person_spoke();
            }
            match self.skip_reason(&stored).await? {
                None => waiting.push(stored),
                Some(ANSWERED) => self.acknowledge(stored.message.id, ANSWERED).await?,
                Some(reason) => self.dismiss(stored.message.id, reason).await?,
            }
        }
        if !state.is_caught_up {
            let extra = waiting.len().saturating_sub(self.config.backlog);
            let mut left = None;
            for stored in waiting.drain(..extra) {
                self.dismiss(stored.message.id, "not answered: more messages arrived than are caught up on")
                    .await?;
                left = Some(stored.seq);
            }
            if let Some(left) = left {
                self.skip_backlog_to(state, left).await?;
            }
            state.is_caught_up = true;
        }
        let (mut pause, mut is_complete) = (None, !state.is_awaiting);
        for stored in waiting {
            if let Some(rest) = state.breaker.rest(hub.now()) {
                pause = Some(rest.unsigned_abs().min(Duration::from_secs(30)));
                break;
            }
            match self.answer(&stored, state).await? {
                AnswerResult::Done => {}
                AnswerResult::Later => pause = Some(PAUSE),
                AnswerResult::NoFile => is_complete = false,
            }
        }
        // Only messages from before this round are known to be handled, so record the position at its start.
        state.looked = (pause.is_none() && is_complete).then_some(latest);
        if state.looked.is_some() {
            self.scanned(state, last).await?;
        }
        Ok(pause)
    }

    /// Marks a message as handled without an answer. A copy in the agent's mailbox stays unread.
    async fn dismiss(&self, id: MessageId, reason: &str) -> Result<(), ChannelError> {
        if self.is_in_the_mailbox(id).await? {
            return Ok(());
        }
        self.acknowledge(id, reason).await
    }

    pub(super) async fn acknowledge(&self, id: MessageId, note: &str) -> Result<(), ChannelError> {
        let agent = AgentId::from(self.config.agent.clone());
        match self.channels.hub().mailboxes().acknowledge(agent, id, Some(note.to_owned())).await {
            // The error is expected if the agent was only mentioned in a message to another agent.
            Ok(_) | Err(HubError::NotTheRecipient { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers one message. The lease ensures a single answer among all watchers of the agent.
    async fn answer(&self, stored: &Stored, state: &mut WatcherState) -> Result<AnswerResult, ChannelError> {
        let id = stored.message.id;
        let lease = SignedDuration::try_from(self.config.timeout).unwrap_or(SignedDuration::MAX);
        let lease = lease.saturating_add(GRACE);
        let Some(request) = self.to_channel_file(stored).await? else { return Ok(AnswerResult::NoFile) };
        let (tree, name, now) =
            (self.channels.tree().clone(), self.config.agent.clone(), self.channels.hub().now());
        // The lease's name is the same for everyone who shares the folder.
        let claimed = format!("{}.{}", self.config.channel, request.id);
        let token = self.token.clone();
        let acquisition = blocking(move || {
            Ok(AnswerLease::acquire(&tree.lease_folder(&name)?, &claimed, now, lease, &token)?)
        })
        .await?;
        let lease = match acquisition {
            Acquisition::Acquired(lease) => lease,
            Acquisition::Busy => return Ok(AnswerResult::Later),
            Acquisition::Done => {
                self.acknowledge(id, ANSWERED).await?;
                return Ok(AnswerResult::Done);
            }
        };
        if let Some(reply) = lease.reply().cloned() {
            self.log(&format!("posting the answer to {id} from an earlier run")).await;
            return self.finish(stored, lease, Some(reply), ANSWERED).await;
        }
        if let Some(reply) = self.own_reply(stored).await? {
            // The lease that stored the answer is gone, but the journal still has the answer.
            self.channels.write_file(&reply.message, reply.seq, &self.config.channel).await?;
            return self.finish(stored, lease, None, ANSWERED).await;
        }
        if let Some(text) = state.unposted.get(&id).cloned() {
            let reply = self.reply(stored, &request, "chat", text).await?;
            let result = self.finish(stored, lease, Some(reply), ANSWERED).await?;
            state.unposted.remove(&id);
            return Ok(result);
        }
        let limit = self.channels.hub().config().loops.pair_per_minute;
        // As in the hub, only an answer to an agent can be part of a message loop.
        let is_in_a_chain = !stored.message.via.is_empty() && !is_of_the_person(&stored.message);
        if is_in_a_chain && !state.breaker.may_answer(&stored.message.from, limit, now) {
            if state.rate_limited.insert(id) {
                let from = &stored.message.from;
                self.log(&format!("{id} waits: {from} was answered {limit} times within a minute")).await;
            }
            blocking(move || Ok(lease.release()?)).await?;
            return Ok(AnswerResult::Later);
        }
        state.rate_limited.remove(&id);
        // Lease the display of the message, so that hooks and tools of the agent do not show it meanwhile.
        let agent = AgentId::from(self.config.agent.clone());
        let held = self.config.timeout.saturating_add(GRACE.unsigned_abs());
        let hold = self
            .channels
            .hub()
            .mailboxes()
            .lease_display_for(agent, vec![id], DisplayMode::Pull, held)
            .await?;
        let is_mail = self.is_in_the_mailbox(id).await?;
        if is_mail && hold.is_empty() {
            // The message is being delivered to the mailbox, or is about to be shown to the agent.
            blocking(move || Ok(lease.release()?)).await?;
            return Ok(AnswerResult::Later);
        }
        self.heartbeat_writer.start_work(now).await;
        self.log(&format!("answering {} from {}", request.id, request.from)).await;
        let result = self.query_program(stored, &request).await;
        // A mailbox message stays leased until its answer is posted, and only then is marked as seen: if the watcher is
        // killed, the message is found again.
        let mut hold = Some(hold);
        if result.is_ok()
            && !is_mail
            && let Some(hold) = hold.take_if(|hold| !hold.is_empty())
        {
            hold.finish(vec![id], Vec::new()).await?;
        }
        let failed = result.as_ref().err().map(|failed| error_chain(failed));
        self.heartbeat_writer.finish_work(failed, self.channels.hub().now()).await;
        match result {
            Ok(text) => {
                state.breaker.worked();
                state.attempts.remove(&id);
                state.unposted.insert(id, text.clone());
                let reply = self.reply(stored, &request, "chat", text).await?;
                let result = self.finish(stored, lease, Some(reply), ANSWERED).await?;
                state.unposted.remove(&id);
                Ok(result)
            }
            Err(failed) => self.fail(stored, &request, lease, &failed, state).await,
        }
    }

    /// Schedules a retry, or reports to the sender that there is no answer.
    async fn fail(
        &self,
        stored: &Stored,
        request: &ChannelMessage,
        lease: AnswerLease,
        failed: &ProgramError,
        state: &mut WatcherState,
    ) -> Result<AnswerResult, ChannelError> {
        let (id, reason) = (stored.message.id, error_chain(failed));
        self.log(&format!("no answer to {}: {reason}", request.id)).await;
        tracing::warn!(agent = %self.config.agent, message = %request.id, %reason, "no answer");
        let now = self.channels.hub().now();
        state.breaker.failed(now);
        let rest = state.breaker.rest(now).and_then(|rest| now.checked_add(rest).ok()).map(|until| {
            format!(
                "too many failures: the program is not started before {} UTC, and messages wait",
                until.strftime("%H:%M")
            )
        });
        if let Some(rest) = &rest {
            self.log(rest).await;
            self.heartbeat_writer.report_error(&format!("{rest}: {reason}"), now).await;
        }
        let attempts = state.attempts.entry(id).or_default();
        *attempts += 1;
        // If the breaker opens, the sender is informed instead, because the next retry would be far off.
        if *attempts <= self.config.retries && rest.is_none() {
            blocking(move || Ok(lease.release()?)).await?;
            return Ok(AnswerResult::Later);
        }
        state.attempts.remove(&id);
        let rest_of_note = rest.as_ref().map(|rest| format!("; {rest}")).unwrap_or_default();
        let note = format!("{NO_ANSWER}{reason}{rest_of_note}");
        if !self.config.incidents {
            return self.finish(stored, lease, None, &note).await;
        }
        let mut text = format!("{} cannot answer: {reason}", self.config.agent);
        if let Some(rest) = rest {
            text = format!("{text}\n\n{rest}.");
        }
        let reply = self.reply(stored, request, INCIDENT, text).await?;
        self.finish(stored, lease, Some(reply), &note).await
    }

    /// Runs the program and extracts its answer.
    async fn query_program(&self, stored: &Stored, request: &ChannelMessage) -> Result<String, ProgramError> {
        let config = &self.config;
        let context = self.channels.read_known(&config.channel, config.context, &request.id).await;
        let context = context.unwrap_or_default();
        let prompt = Prompt {
            watcher: config,
            role: self.read_text(config.role.as_deref()).await,
            memory: self.read_text(config.memory.as_deref()).await,
            context: &context,
            request,
            trust: stored.message.trust(),
            mark: fresh_mark(),
        };
        let guard = self.channels.config().guard.as_ref();
        let output = run_program(config, &config.agent, &prompt.text(), guard).await?;
        let answer = answer::extract(config.format, &output)?;
        let limit = self.channels.hub().config().body_limit;
        if answer.len() > limit {
            Err(ProgramError::TooLong { size: answer.len(), limit })
        } else {
            Ok(answer)
        }
    }

    /// Reads a configured file. An unreadable file is logged and left out of the prompt.
    async fn read_text(&self, path: Option<&Path>) -> Option<String> {
        let path = path?.to_owned();
        let read = blocking({
            let path = path.clone();
            move || {
                let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|n| n.to_str()))
                else {
                    return Ok(None);
                };
                let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                Ok(Dir::open_root(folder)?.read(name, TEXT_LIMIT)?)
            }
        })
        .await;
        match read {
            Ok(Some(read)) => Some(String::from_utf8_lossy(&read.bytes).into_owned()),
            Ok(None) => {
                self.log(&format!("there is no file {}", path.display())).await;
                None
            }
            Err(error) => {
                self.log(&error_chain(&error)).await;
                None
            }
        }
    }

    /// Converts the message to its file in the channel; returns `None` while the file has no name.
    async fn to_channel_file(&self, stored: &Stored) -> Result<Option<ChannelMessage>, ChannelError> {
        let channel = &self.config.channel;
        let file = to_file(&stored.message, stored.seq, channel, None, 0);
        let native = &stored.message.origin.native;
        let id = if native.door == Door::Channels && native.scope.eq_ignore_ascii_case(channel.as_str()) {
            Some(native.id.clone())
        } else {
            self.channels
                .hub()
                .native_ids()
                .of_message(Door::Channels, channel.as_str(), stored.message.id)
                .await?
        };
        Ok(id.map(|id| ChannelMessage { id, ..file }))
    }

    pub(super) async fn log(&self, line: &str) {
        log::write(self.channels.tree(), &self.config.agent, self.channels.hub().now(), line).await;
    }
}

/// Returns true if the person wrote the message, as verified by the hub.
fn is_of_the_person(message: &Message) -> bool {
    message.from.is_human() && message.origin.verified
}

#[cfg(test)]
#[path = "watcher_tests.rs"]
mod tests;
