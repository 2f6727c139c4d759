//! Writing half of a session: sends events and answers to one client.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Transport;
use crate::legacy::translate_lines;
use crate::log::{Batch, EventPredicate, Expired, seq_of};
use crate::router::{Requester, Router};
use crate::wire::event::{CutOff, EventBody, Heartbeat, Subscribed};
use crate::wire::format_event;

/// Maximum number of bytes per batch.
const BATCH: usize = 128 << 10;

/// Time limit for a client that is being disconnected to read the reason.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit for a client that has stopped reading to read the reason for its disconnection.
///
/// It may be long, because only the rest of a line and the reason stay in memory.
const STALLED_TIMEOUT: Duration = Duration::from_mins(10);

/// Reason for disconnecting clients when the router stops.
const STOPPED: &str = "the router was stopped";

/// Output for a client.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// An answer for this client alone.
    Answer(EventBody),
    /// Starts sending events from now on.
    Start {
        /// The selected events.
        subscription: Subscription,
    },
    /// Starts sending events after a cursor.
    Subscribe {
        /// Sequence number of the last event that the client has.
        from_seq: u64,
        /// The selected events.
        subscription: Subscription,
        /// The answer to write before the events.
        answer: Subscribed,
    },
    /// Disconnects the client.
    Disconnect {
        /// The reason.
        reason: String,
    },
}

/// The jobs to which a client subscribed.
///
/// Jobs for which the client sends commands are added, because the answers are among their events.
pub(super) type Jobs = Arc<Mutex<Vec<String>>>;

/// Events that a client has subscribed to and may see.
#[derive(Debug, Clone)]
pub(super) struct Subscription {
    pub(super) jobs: Option<Jobs>,
    pub(super) requester: Requester,
}

struct EventFilter {
    subscription: Subscription,
    router: Router,
}

impl EventPredicate for EventFilter {
    fn matches_all(&self) -> bool {
        self.subscription.jobs.is_none() && self.subscription.requester.owner.is_none()
    }

    fn matches(&self, job: Option<&str>) -> bool {
        let Some(job) = job else { return self.subscription.requester.owner.is_none() };
        let named =
            self.subscription.jobs.as_ref().is_none_or(|jobs| jobs.lock().iter().any(|known| known == job));
        let is_allowed =
            || self.router.job(job).is_some_and(|job| self.subscription.requester.can_access(&job));
        named && (self.subscription.requester.owner.is_none() || is_allowed())
    }
}

/// Task that writes events and answers to one client.
pub(super) struct EventWriter<W> {
    router: Router,
    writer: W,
    outgoing: mpsc::Receiver<Outgoing>,
    transport: Transport,
    done: CancellationToken,
    /// Cursor after the batch that is being written.
    seq: u64,
    /// Cursor after the last event that was written completely.
    served: u64,
    event_filter: Option<Arc<EventFilter>>,
    /// True once the client has caught up; before that, its lag is not limited.
    is_live: bool,
    /// True if events are translated into the legacy dialect.
    is_legacy: Arc<AtomicBool>,
}

impl<W: AsyncWrite + Unpin> EventWriter<W> {
    pub(super) fn new(
        router: Router,
        writer: W,
        outgoing: mpsc::Receiver<Outgoing>,
        transport: Transport,
        done: CancellationToken,
        is_legacy: Arc<AtomicBool>,
    ) -> Self {
        let seq = router.log().newest();
        let everything = Subscription {
            jobs: None,
            requester: Requester {
                client: String::new(),
                agent: switchboard_core::AgentId::human(),
                owner: None,
            },
        };
        let event_filter = match transport {
            Transport::Stdio => {
                Some(Arc::new(EventFilter { subscription: everything, router: router.clone() }))
            }
            Transport::Socket => None,
        };
        Self {
            router,
            writer,
            outgoing,
            transport,
            done,
            seq,
            served: seq,
            event_filter,
            is_live: false,
            is_legacy,
        }
    }

    /// Writes until the client disconnects, or until `done` fires and all events are written.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut changes = self.router.log().subscribe();
        let mut bytes = Vec::new();
        let (mut is_asking, mut next) = (true, None);
        loop {
            changes.mark_unchanged();
            // Events are written before each single answer, so that the events that led to an answer precede it.
            match self.events().await {
                Ok(batch) => bytes.extend_from_slice(&batch),
                Err(reason) => return self.disconnect(bytes, reason).await,
            }
            let outgoing = next.take().or_else(|| self.outgoing.try_recv().ok());
            let is_new = outgoing.is_some();
            match outgoing {
                Some(Outgoing::Disconnect { reason }) => return self.disconnect(bytes, reason).await,
                Some(outgoing) => self.apply(outgoing, &mut bytes),
                None => {}
            }
            if !bytes.is_empty() {
                if let Some(written) = self.write(&bytes).await? {
                    return self.disconnect_stalled(&bytes, written).await;
                }
                self.served = self.seq;
                bytes.clear();
                if bytes.capacity() > 4 * BATCH {
                    bytes = Vec::new();
                }
                continue;
            }
            if is_new {
                continue;
            }
            let is_done = self.done.is_cancelled();
            if is_done && (self.event_filter.is_none() || self.seq >= self.router.log().newest()) {
                return self.disconnect(bytes, STOPPED.to_owned()).await;
            }
            tokio::select! {
                outgoing = self.outgoing.recv(), if is_asking => match outgoing {
                    Some(outgoing) => next = Some(outgoing),
                    // The reader has ended. On a socket, this means that the client has disconnected, unless the router
                    // is stopping: then the client still receives the reason.
                    None if self.transport == Transport::Socket && !self.done.is_cancelled() => {
                        return self.writer.shutdown().await;
                    }
                    None => is_asking = false,
                },
                _ = changes.changed(), if self.event_filter.is_some() => {}
                () = tokio::time::sleep(self.router.config().heartbeat) => {
                    if self.event_filter.is_some() {
                        let beat = self.heartbeat();
                        bytes.extend(self.line(&beat));
                    }
                }
                () = self.done.cancelled(), if !is_done => {}
            }
        }
    }

    fn apply(&mut self, outgoing: Outgoing, bytes: &mut Vec<u8>) {
        match outgoing {
            Outgoing::Answer(body) => bytes.extend(self.translate(self.line(&body))),
            Outgoing::Start { subscription } => {
                if self.event_filter.is_none() {
                    self.event_filter =
                        Some(Arc::new(EventFilter { subscription, router: self.router.clone() }));
                }
            }
            Outgoing::Subscribe { from_seq, subscription, answer } => {
                self.seq = from_seq;
                self.served = from_seq;
                self.is_live = false;
                self.event_filter = Some(Arc::new(EventFilter { subscription, router: self.router.clone() }));
                bytes.extend(self.line(&EventBody::Subscribed(answer)));
            }
            // The caller handles this variant, because it ends the session.
            Outgoing::Disconnect { .. } => {}
        }
    }

    /// Returns the next batch of events, or the reason to disconnect.
    async fn events(&mut self) -> Result<Vec<u8>, String> {
        let Some(event_filter) = self.event_filter.clone() else { return Ok(Vec::new()) };
        let newest = self.router.log().newest();
        if self.seq >= newest {
            self.is_live = true;
            return Ok(Vec::new());
        }
        let lag = self.router.config().lag;
        if self.transport == Transport::Socket && self.is_live && newest - self.seq > lag {
            return Err(format!("the client is {} events behind, more than {lag}", newest - self.seq));
        }
        let mut bytes = Vec::new();
        // Events outside the subscription are skipped without waiting.
        while bytes.is_empty() && self.seq < newest {
            let batch = match self.router.log().read_ring(self.seq, &*event_filter, BATCH) {
                Some(batch) => batch,
                None => self.read_segment(Arc::clone(&event_filter)).await?,
            };
            if batch.seq == self.seq {
                break;
            }
            self.seq = batch.seq;
            bytes = self.translate(batch.bytes);
        }
        Ok(bytes)
    }

    async fn read_segment(&self, event_filter: Arc<EventFilter>) -> Result<Batch, String> {
        let (router, seq) = (self.router.clone(), self.seq);
        let read = tokio::task::spawn_blocking(move || router.log().read_segment(seq, &*event_filter)).await;
        match read {
            Ok(Ok(batch)) => Ok(batch),
            Ok(Err(Expired { oldest })) => {
                Err(format!("events after {seq} have expired; the oldest available is {oldest}"))
            }
            Err(error) => Err(format!("the log cannot be read: {error}")),
        }
    }

    /// Writes with a stall limit. If the client has stopped reading, returns the number of bytes that were written.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let (writer, mut written) = (&mut self.writer, 0);
        let writing = async {
            while written < bytes.len() {
                match writer.write(&bytes[written..]).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    count => written += count,
                }
            }
            writer.flush().await
        };
        if self.transport == Transport::Stdio {
            return writing.await.map(|()| None);
        }
        let stall = self.router.config().stall;
        let stalled = async {
            tokio::select! {
                () = tokio::time::sleep(stall) => {}
                // A stalled client must not delay the shutdown of the router.
                () = self.done.cancelled() => tokio::time::sleep(DISCONNECT_TIMEOUT.min(stall)).await,
            }
        };
        tokio::select! {
            biased;
            result = writing => result.map(|()| None),
            () = stalled => Ok(Some(written)),
        }
    }

    /// Disconnects a stalled client.
    ///
    /// The reason follows the partly written line, so that the client finds it when it reads again.
    async fn disconnect_stalled(mut self, bytes: &[u8], written: usize) -> io::Result<()> {
        self.outgoing.close();
        let (head, rest) = bytes.split_at(written);
        let is_whole = head.last().is_none_or(|last| *last == b'\n');
        let ends = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        let mut last_lines = if is_whole { Vec::new() } else { rest[..ends].to_vec() };
        let written_lines = bytes[..written + last_lines.len()].split_inclusive(|byte| *byte == b'\n');
        // The last complete line determines the cursor from which the client resumes.
        self.seq = written_lines.filter_map(seq_of).next_back().unwrap_or(self.served);
        let reason = if self.done.is_cancelled() {
            STOPPED.to_owned()
        } else {
            format!("the client read nothing for {} s", self.router.config().stall.as_secs())
        };
        last_lines.extend(self.line(&EventBody::CutOff(CutOff { reason, resume_from: self.seq })));
        let done = self.done.clone();
        let writing = async {
            self.writer.write_all(&last_lines).await?;
            self.writer.shutdown().await
        };
        tokio::select! {
            written = timeout(STALLED_TIMEOUT, writing) => written.unwrap_or(Ok(())),
            () = done.cancelled() => Ok(()),
        }
    }

    /// Writes the reason and the cursor to resume from, then closes the connection.
    async fn disconnect(mut self, mut bytes: Vec<u8>, reason: String) -> io::Result<()> {
        bytes.extend(self.line(&EventBody::CutOff(CutOff { reason, resume_from: self.seq })));
        let writing = async {
            self.writer.write_all(&bytes).await?;
            self.writer.shutdown().await
        };
        timeout(DISCONNECT_TIMEOUT, writing).await.unwrap_or(Ok(()))
    }

    fn heartbeat(&self) -> EventBody {
        let jobs = self.router.jobs();
        let nodes = jobs.iter().flat_map(|job| &job.nodes);
        let busy = nodes.filter(|node| node.state.lock().injection.is_some()).count();
        let jobs = jobs.iter().filter(|job| !job.is_terminated()).count();
        EventBody::Heartbeat(Heartbeat { jobs, busy })
    }

    fn translate(&self, lines: Vec<u8>) -> Vec<u8> {
        if self.is_legacy.load(Ordering::Acquire) { translate_lines(&lines) } else { lines }
    }

    fn line(&self, body: &EventBody) -> Vec<u8> {
        format_event(self.seq, self.router.hub().now(), body)
    }
}
