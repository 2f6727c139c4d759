//! What goes out to one client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Transport;
use crate::log::{Batch, Expired, Wanted};
use crate::router::{Asker, Router};
use crate::wire::event::{CutOff, EventBody, Heartbeat, Subscribed};
use crate::wire::event_line;

/// How much is written at once.
const BATCH: usize = 128 << 10;

/// How long a client that is cut off has to read the reason.
const PARTING: Duration = Duration::from_secs(2);

/// What is to go out.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// An answer for this client.
    Answer(EventBody),
    /// Events from now on.
    Begin {
        /// Which.
        filter: Filter,
    },
    /// Events from somewhere on.
    Subscribe {
        /// Everything after this.
        from_seq: u64,
        /// Which.
        filter: Filter,
        /// What to say first.
        answer: Subscribed,
    },
}

/// Which events a client wants, and may have.
#[derive(Debug, Clone)]
pub(super) struct Filter {
    pub(super) jobs: Option<Vec<String>>,
    pub(super) asker: Asker,
}

struct Sieve {
    filter: Filter,
    router: Router,
}

impl Wanted for Sieve {
    fn everything(&self) -> bool {
        self.filter.jobs.is_none() && self.filter.asker.owner.is_none()
    }

    fn wants(&self, job: Option<&str>) -> bool {
        let Some(job) = job else { return self.filter.asker.owner.is_none() };
        let named = self.filter.jobs.as_ref().is_none_or(|jobs| jobs.iter().any(|known| known == job));
        let may = || self.router.job(job).is_some_and(|job| self.filter.asker.may(&job));
        named && (self.filter.asker.owner.is_none() || may())
    }
}

/// The writing side of a session.
pub(super) struct Feed<W> {
    router: Router,
    writer: W,
    outgoing: mpsc::Receiver<Outgoing>,
    transport: Transport,
    done: CancellationToken,
    /// Up to where the client has been served.
    seq: u64,
    sieve: Option<Arc<Sieve>>,
    /// Whether it has once had everything: only then can it fall behind.
    is_live: bool,
}

impl<W: AsyncWrite + Unpin> Feed<W> {
    pub(super) fn new(
        router: Router,
        writer: W,
        outgoing: mpsc::Receiver<Outgoing>,
        transport: Transport,
        done: CancellationToken,
    ) -> Self {
        let seq = router.log().newest();
        let everything = Filter {
            jobs: None,
            asker: Asker { client: String::new(), agent: switchboard_core::AgentId::human(), owner: None },
        };
        let sieve = match transport {
            Transport::Stdio => Some(Arc::new(Sieve { filter: everything, router: router.clone() })),
            Transport::Socket => None,
        };
        Self { router, writer, outgoing, transport, done, seq, sieve, is_live: false }
    }

    /// Writes until the client hangs up, or everything was told and `done`.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut news = self.router.log().follow();
        let mut bytes = Vec::new();
        let (mut is_asking, mut next) = (true, None);
        loop {
            news.mark_unchanged();
            // Events before answers, and one answer at a time: what an answer follows from has been told before it.
            match self.events().await {
                Ok(batch) => bytes.extend_from_slice(&batch),
                Err(reason) => return self.part(bytes, reason).await,
            }
            let outgoing = next.take().or_else(|| self.outgoing.try_recv().ok());
            let is_new = outgoing.is_some();
            if let Some(outgoing) = outgoing {
                self.apply(outgoing, &mut bytes);
            }
            if !bytes.is_empty() {
                self.write(&bytes).await?;
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
            if is_done && (self.sieve.is_none() || self.seq >= self.router.log().newest()) {
                return self.part(bytes, "the router was stopped".to_owned()).await;
            }
            tokio::select! {
                outgoing = self.outgoing.recv(), if is_asking => match outgoing {
                    Some(outgoing) => next = Some(outgoing),
                    // It will ask for nothing more. On a socket that means that it has gone.
                    None if self.transport == Transport::Socket => return self.writer.shutdown().await,
                    None => is_asking = false,
                },
                _ = news.changed(), if self.sieve.is_some() => {}
                () = tokio::time::sleep(self.router.config().heartbeat) => {
                    if self.sieve.is_some() {
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
            Outgoing::Answer(body) => bytes.extend(self.line(&body)),
            Outgoing::Begin { filter } => {
                if self.sieve.is_none() {
                    self.sieve = Some(Arc::new(Sieve { filter, router: self.router.clone() }));
                }
            }
            Outgoing::Subscribe { from_seq, filter, answer } => {
                self.seq = from_seq;
                self.is_live = false;
                self.sieve = Some(Arc::new(Sieve { filter, router: self.router.clone() }));
                bytes.extend(self.line(&EventBody::Subscribed(answer)));
            }
        }
    }

    /// The next events that are there; why the client cannot go on, where it cannot.
    async fn events(&mut self) -> Result<Vec<u8>, String> {
        let Some(sieve) = self.sieve.clone() else { return Ok(Vec::new()) };
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
            let batch = match self.router.log().recent(self.seq, &*sieve, BATCH) {
                Some(batch) => batch,
                None => self.older(Arc::clone(&sieve)).await?,
            };
            if batch.seq == self.seq {
                break;
            }
            self.seq = batch.seq;
            bytes = batch.bytes;
        }
        Ok(bytes)
    }

    async fn older(&self, sieve: Arc<Sieve>) -> Result<Batch, String> {
        let (router, seq) = (self.router.clone(), self.seq);
        let read = tokio::task::spawn_blocking(move || router.log().older(seq, &*sieve)).await;
        match read {
            Ok(Ok(batch)) => Ok(batch),
            Ok(Err(Expired { oldest })) => {
                Err(format!("events after {seq} are not kept any more; the oldest is {oldest}"))
            }
            Err(error) => Err(format!("the log cannot be read: {error}")),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let writer = &mut self.writer;
        let writing = async {
            writer.write_all(bytes).await?;
            writer.flush().await
        };
        if self.transport == Transport::Stdio {
            return writing.await;
        }
        let stall = self.router.config().stall;
        timeout(stall, writing).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Says why, and from where to go on, and hangs up.
    async fn part(mut self, mut bytes: Vec<u8>, reason: String) -> io::Result<()> {
        bytes.extend(self.line(&EventBody::CutOff(CutOff { reason, resume_from: self.seq })));
        let writing = async {
            self.writer.write_all(&bytes).await?;
            self.writer.shutdown().await
        };
        timeout(PARTING, writing).await.unwrap_or(Ok(()))
    }

    fn heartbeat(&self) -> EventBody {
        let jobs = self.router.jobs();
        let nodes = jobs.iter().flat_map(|job| &job.nodes);
        let busy = nodes.filter(|node| node.state.lock().injection.is_some()).count();
        let jobs = jobs.iter().filter(|job| !job.is_terminated()).count();
        EventBody::Heartbeat(Heartbeat { jobs, busy })
    }

    fn line(&self, body: &EventBody) -> Vec<u8> {
        event_line(self.seq, self.router.hub().now(), body)
    }
}
