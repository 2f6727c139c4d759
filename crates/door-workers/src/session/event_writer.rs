//! What goes out to one client.

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

/// How much is written at once.
const BATCH: usize = 128 << 10;

/// How long a client that is cut off has to read the reason.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// The same for one that has stopped reading: nothing more is kept for it than the rest of a line and the reason, so
/// that it may take its time to find them.
const STALLED_TIMEOUT: Duration = Duration::from_mins(10);

/// Why a client is hung up on that has done nothing wrong.
const STOPPED: &str = "the router was stopped";

/// What is to go out.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// An answer for this client.
    Answer(EventBody),
    /// Events from now on.
    Begin {
        /// Which.
        filter: Subscription,
    },
    /// Events from somewhere on.
    Subscribe {
        /// Everything after this.
        from_seq: u64,
        /// Which.
        filter: Subscription,
        /// What to say first.
        answer: Subscribed,
    },
    /// Nothing more: it is hung up on.
    Disconnect {
        /// Why.
        reason: String,
    },
}

/// The jobs that a client wants to hear of. Those that it does something with are added: the answers are among their
/// events.
pub(super) type Jobs = Arc<Mutex<Vec<String>>>;

/// Which events a client wants, and may have.
#[derive(Debug, Clone)]
pub(super) struct Subscription {
    pub(super) jobs: Option<Jobs>,
    pub(super) requester: Requester,
}

struct EventFilter {
    filter: Subscription,
    router: Router,
}

impl EventPredicate for EventFilter {
    fn matches_all(&self) -> bool {
        self.filter.jobs.is_none() && self.filter.requester.owner.is_none()
    }

    fn matches(&self, job: Option<&str>) -> bool {
        let Some(job) = job else { return self.filter.requester.owner.is_none() };
        let named = self.filter.jobs.as_ref().is_none_or(|jobs| jobs.lock().iter().any(|known| known == job));
        let can_access = || self.router.job(job).is_some_and(|job| self.filter.requester.can_access(&job));
        named && (self.filter.requester.owner.is_none() || can_access())
    }
}

/// The writing side of a session.
pub(super) struct EventWriter<W> {
    router: Router,
    writer: W,
    outgoing: mpsc::Receiver<Outgoing>,
    transport: Transport,
    done: CancellationToken,
    /// Up to where the client has been served, with what is about to be written.
    seq: u64,
    /// And up to where without that.
    served: u64,
    event_filter: Option<Arc<EventFilter>>,
    /// Whether it has once had everything: only then can it fall behind.
    is_live: bool,
    /// Whether it is told everything in the older router's words.
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
        let matches_all = Subscription {
            jobs: None,
            requester: Requester {
                client: String::new(),
                agent: switchboard_core::AgentId::human(),
                owner: None,
            },
        };
        let event_filter = match transport {
            Transport::Stdio => Some(Arc::new(EventFilter { filter: matches_all, router: router.clone() })),
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

    /// Writes until the client hangs up, or everything was told and `done`.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut news = self.router.log().subscribe();
        let mut bytes = Vec::new();
        let (mut is_asking, mut next) = (true, None);
        loop {
            news.mark_unchanged();
            // Events before answers, and one answer at a time: what an answer follows from has been told before it.
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
                    // It will ask for nothing more. On a socket that means that it has gone, unless it is we who
                    // stopped listening to it: then it is still to be told why.
                    None if self.transport == Transport::Socket && !self.done.is_cancelled() => {
                        return self.writer.shutdown().await;
                    }
                    None => is_asking = false,
                },
                _ = news.changed(), if self.event_filter.is_some() => {}
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
            Outgoing::Begin { filter } => {
                if self.event_filter.is_none() {
                    self.event_filter = Some(Arc::new(EventFilter { filter, router: self.router.clone() }));
                }
            }
            Outgoing::Subscribe { from_seq, filter, answer } => {
                self.seq = from_seq;
                self.served = from_seq;
                self.is_live = false;
                self.event_filter = Some(Arc::new(EventFilter { filter, router: self.router.clone() }));
                bytes.extend(self.line(&EventBody::Subscribed(answer)));
            }
            // Handled where it ends the session.
            Outgoing::Disconnect { .. } => {}
        }
    }

    /// The next events that are there; why the client cannot go on, where it cannot.
    async fn events(&mut self) -> Result<Vec<u8>, String> {
        let Some(event_filter) = self.event_filter.clone() else { return Ok(Vec::new()) };
        let newest = self.router.log().newest();
        if self.seq >= newest {
            self.is_live = true;
            return Ok(Vec::new());
        }
        let lag = self.router.config().lag;
        if self.transport == Transport::Socket && self.is_live && newest - self.seq > lag {
            return Err(format!("{} events behind, more than {lag}", newest - self.seq));
        }
        let mut bytes = Vec::new();
        // What this client does not want is passed over without a pause.
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
                Err(format!("events after {seq} are not kept any more; the oldest is {oldest}"))
            }
            Err(error) => Err(format!("the log cannot be read: {error}")),
        }
    }

    /// Writes; how much of it where the client takes no more.
    async fn write(&mut self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let (writer, mut written) = (&mut self.writer, 0);
        let writing = async {
            while written < bytes.len() {
                match writer.write(&bytes[written..]).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    add_tokens => written += add_tokens,
                }
            }
            writer.flush().await
        };
        if self.transport == Transport::Stdio {
            return writing.await.map(|()| None);
        }
        let stall = self.router.config().stall;
        let is_late = async {
            tokio::select! {
                () = tokio::time::sleep(stall) => {}
                // The end of the router is nothing to keep everybody else waiting for.
                () = self.done.cancelled() => tokio::time::sleep(DISCONNECT_TIMEOUT.min(stall)).await,
            }
        };
        tokio::select! {
            biased;
            result = writing => result.map(|()| None),
            () = is_late => Ok(Some(written)),
        }
    }

    /// Parts from a client that reads nothing: after the line that it has a part of comes the reason, for when it
    /// looks again.
    async fn disconnect_stalled(mut self, bytes: &[u8], written: usize) -> io::Result<()> {
        self.outgoing.close();
        let (begun, rest) = bytes.split_at(written);
        let is_whole = begun.last().is_none_or(|last| *last == b'\n');
        let ends = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |end| end + 1);
        let mut parting = if is_whole { Vec::new() } else { rest[..ends].to_vec() };
        let told = bytes[..written + parting.len()].split_inclusive(|byte| *byte == b'\n');
        // Every line says up to where the client was served with it.
        self.seq = told.filter_map(seq_of).next_back().unwrap_or(self.served);
        let reason = if self.done.is_cancelled() {
            STOPPED.to_owned()
        } else {
            format!("nothing was read for {} s", self.router.config().stall.as_secs())
        };
        parting.extend(self.line(&EventBody::CutOff(CutOff { reason, resume_from: self.seq })));
        let done = self.done.clone();
        let writing = async {
            self.writer.write_all(&parting).await?;
            self.writer.shutdown().await
        };
        tokio::select! {
            written = timeout(STALLED_TIMEOUT, writing) => written.unwrap_or(Ok(())),
            () = done.cancelled() => Ok(()),
        }
    }

    /// Says why, and from where to go on, and hangs up.
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
