//! Session of one client: reads commands, writes events and answers.
//!
//! No client delays another, because each reads the log from its own cursor.

mod event_writer;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use switchboard_core::{AgentId, Name, NodeId};
use switchboard_hub::{Accepted, Draft, HUB_NAME};
use switchboard_sys::lineage::Lineage;
use switchboard_sys::platform::TcpPeer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::event_writer::{EventWriter, Jobs, Outgoing, Subscription};
use crate::intake::{self, COMMANDS, reject};
use crate::legacy::{self, LegacyMode, legacy_name, translate_rejection};
use crate::lines::{Line, Lines};
use crate::router::{
    QueueSlot, RequestContext, Requester, Router, duplicate_ack, reject_stopped, reject_submission,
    terminated,
};
use crate::wire::PROTOCOL;
use crate::wire::command::{AgentKind, Command, Hello, Inject, JobRef, Request, Steer, Subscribe};
use crate::wire::event::{CommandRejected, EventBody, HelloReply, RejectCode, Subscribed};

/// Maximum number of unread answers. When the queue is full, the session stops reading the client's commands.
const ANSWERS: usize = 256;

/// Maximum number of request ids that a session remembers.
///
/// The journal deduplicates a retried injection even if the session has forgotten its id.
const MAX_REQUEST_IDS: usize = 4096;

/// Maximum length of a client's name.
const CLIENT: usize = 64;

/// Default sender of injections.
const ORCHESTRATOR: &str = "orchestrator";

/// Access rules of a connection.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Tokens that `hello` accepts. If the list is empty, every client is served, subject to `legacy`.
    pub tokens: Vec<AccessToken>,
    /// True if a client of the legacy dialect is served without a token.
    ///
    /// Such a client may use only that dialect, and its first line must be one of its commands. Must be false for a
    /// connection that could come from another user.
    pub legacy: bool,
    /// Process id of the client, if the system reports it. An agent's process may not perform actions that are reserved
    /// for the person.
    pub client_pid: Option<u32>,
    /// TCP peer on this machine, if the system reports it.
    pub peer: Option<TcpPeer>,
}

/// An access token and the jobs to which it grants access.
#[derive(Clone)]
pub struct AccessToken {
    /// The token itself.
    pub token: String,
    /// The owner of the jobs; `None` for all jobs.
    pub owner: Option<String>,
}

impl std::fmt::Debug for AccessToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessToken").field("owner", &self.owner).finish_non_exhaustive()
    }
}

/// Transport of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// Stdin and stdout.
    ///
    /// The client cannot reconnect, so it is never disconnected for lag, and it receives events without subscribing.
    Stdio,
    /// A socket.
    ///
    /// The client can reconnect, so it is disconnected if it lags. Its events start with its first command.
    Socket,
}

/// Serves one client until it disconnects, or until `done` fires and all events are written.
///
/// Fires `eof` at the end of the client's input. A client on a socket is then disconnected; a client on stdin receives
/// events until `done` fires.
pub async fn serve(
    router: &Router,
    reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
    transport: Transport,
    access: &Access,
    eof: CancellationToken,
    done: CancellationToken,
) -> io::Result<()> {
    let (answers, outgoing) = mpsc::channel(ANSWERS);
    let is_legacy = Arc::new(AtomicBool::new(false));
    let event_writer =
        EventWriter::new(router.clone(), writer, outgoing, transport, done.clone(), Arc::clone(&is_legacy));
    let session = Session::new(router.clone(), answers, access.clone(), is_legacy);
    let reading = async {
        if let Err(error) = session.run(reader, done).await {
            tracing::debug!(%error, "reading from a client failed");
        }
        eof.cancel();
        // Reading stays pending, because answers to earlier commands must still be written.
        std::future::pending::<()>().await;
    };
    tokio::select! {
        written = event_writer.run() => written,
        () = reading => Ok(()),
    }
}

struct Session {
    router: Router,
    answers: mpsc::Sender<Outgoing>,
    access: Access,
    requester: Requester,
    is_admitted: bool,
    /// True if the client was admitted without a token although tokens are required.
    is_restricted: bool,
    /// True from the client's first command in the legacy dialect on.
    is_legacy: Arc<AtomicBool>,
    /// Request ids that were used; the value is true for an injection.
    seen: HashMap<String, bool>,
    order: VecDeque<String>,
    has_started: bool,
    /// The jobs to which the client subscribed; `None` for all jobs.
    jobs: Option<Jobs>,
}

/// A batch of injections, in order of arrival.
#[derive(Default)]
struct Injections {
    drafts: Vec<(Draft, QueueSlot)>,
    submitted: Vec<SubmittedInjection>,
}

/// An injection of the batch, with the data for an acknowledgement or rejection.
struct SubmittedInjection {
    request_id: String,
    node: NodeId,
}

impl Injections {
    fn add(&mut self, request_id: &str, drafts: Vec<(Draft, QueueSlot)>) {
        for (draft, slot) in drafts {
            let (request_id, node) = (request_id.to_owned(), slot.node().clone());
            self.submitted.push(SubmittedInjection { request_id, node });
            self.drafts.push((draft, slot));
        }
    }
}

impl Session {
    fn new(
        router: Router,
        answers: mpsc::Sender<Outgoing>,
        access: Access,
        is_legacy: Arc<AtomicBool>,
    ) -> Self {
        let requester = Requester {
            client: format!("session-{:016x}", fastrand::u64(..)),
            agent: Name::parse(ORCHESTRATOR).map_or_else(|_| AgentId::human(), AgentId::local),
            owner: None,
        };
        let is_admitted = access.tokens.is_empty() && !access.legacy;
        Self {
            router,
            answers,
            access,
            requester,
            is_admitted,
            is_restricted: false,
            is_legacy,
            seen: HashMap::new(),
            order: VecDeque::new(),
            has_started: false,
            jobs: None,
        }
    }

    /// Reads and executes commands until the end of the input.
    async fn run(mut self, mut reader: impl AsyncRead + Unpin, done: CancellationToken) -> io::Result<()> {
        let cap = self.router.config().max_line;
        let hello_by = tokio::time::Instant::now() + self.router.config().hello;
        let mut lines = Lines::new(cap);
        loop {
            let more = tokio::select! {
                more = lines.read(&mut reader) => more?,
                () = done.cancelled() => return Ok(()),
                // Unauthenticated clients must not occupy connections for long.
                () = tokio::time::sleep_until(hello_by), if !self.is_admitted => {
                    let reason = "no hello with a token in time".to_owned();
                    let _ = self.answers.send(Outgoing::Disconnect { reason }).await;
                    return Ok(());
                }
            };
            let mut injections = Injections::default();
            while let Some(line) = lines.next() {
                if !self.handle_line(line, cap, &mut injections).await {
                    return Ok(());
                }
            }
            if !more && let Some(line) = lines.rest() {
                self.handle_line(line, cap, &mut injections).await;
            }
            self.submit(&mut injections).await;
            if !more {
                return Ok(());
            }
        }
    }

    /// Executes the command of a line; false if the client must be disconnected.
    async fn handle_line(&mut self, line: Line, cap: usize, injections: &mut Injections) -> bool {
        let (parsed, is_legacy) = match line {
            Line::TooLong => (Some(Err(intake::reject_too_long(cap))), false),
            Line::Complete(line) => {
                let parsed = intake::parse(&line, self.legacy_mode());
                let is_rejected = matches!(parsed, Some(Err(_)));
                (parsed, is_rejected && legacy::has_legacy_command(&line))
            }
        };
        let request = match parsed {
            None => return true,
            Some(Ok(request)) => request,
            Some(Err(rejected)) => {
                if is_legacy {
                    // A legacy command selects the legacy dialect even if one of its fields is invalid.
                    self.admit_legacy();
                    self.is_legacy.store(true, Ordering::Release);
                } else if !self.is_admitted && self.access.legacy {
                    // The first line protects against web pages: they can make a browser connect but cannot choose the
                    // line it sends first.
                    tracing::warn!(
                        reason = rejected.reason,
                        "refused a client that does not speak the legacy dialect"
                    );
                }
                self.answer(EventBody::CommandRejected(rejected)).await;
                return self.is_admitted;
            }
        };
        if request.is_legacy {
            self.is_legacy.store(true, Ordering::Release);
        }
        let (request_id, is_legacy) = (request.request_id.clone(), request.is_legacy);
        let command = legacy_name(&request.command);
        let handled = self.handle(request, injections).await;
        if let Err(rejected) = handled {
            let rejected = if is_legacy { translate_rejection(command, rejected) } else { rejected };
            let rejected = CommandRejected { request_id: Some(request_id), ..rejected };
            self.answer(EventBody::CommandRejected(rejected)).await;
        }
        self.is_admitted
    }

    /// Admits a client of the legacy dialect if its access rules allow that.
    fn admit_legacy(&mut self) {
        if !self.is_admitted && self.access.legacy {
            (self.is_admitted, self.is_restricted) = (true, true);
        }
    }

    async fn handle(
        &mut self,
        mut request: Request,
        injections: &mut Injections,
    ) -> Result<(), CommandRejected> {
        if request.is_legacy {
            self.admit_legacy();
        }
        let needs_token = !self.is_admitted || self.is_restricted && !request.is_legacy;
        if needs_token && !matches!(request.command, Command::Hello(_)) {
            let reason = "say hello with a token first".to_owned();
            return Err(reject(RejectCode::NotAllowed, Some("payload.token"), reason));
        }
        let is_injection = matches!(request.command, Command::Inject(_));
        self.register_request_id(&request.request_id, is_injection)?;
        if !matches!(request.command, Command::Subscribe(_) | Command::Hello(_)) {
            self.start_events().await;
        }
        let followed = self.follow_job(&mut request.command);
        let obeyed = self.execute(request, injections).await;
        if obeyed.is_err() {
            self.unfollow_job(followed);
        }
        obeyed
    }

    async fn execute(
        &mut self,
        request: Request,
        injections: &mut Injections,
    ) -> Result<(), CommandRejected> {
        let Request { request_id, command, is_legacy } = request;
        match command {
            Command::Inject(inject) => {
                let context = RequestContext { requester: &self.requester, request_id: &request_id };
                let drafts = self.router.build_drafts(context, inject).await?;
                injections.add(&request_id, drafts);
                return Ok(());
            }
            // Earlier injections are submitted first, to preserve the order of commands.
            _ => self.submit(injections).await,
        }
        if matches!(command, Command::Approve(_)) {
            self.refuse_agent("payload.approval_id", "answer what agents ask for").await?;
        }
        match command {
            Command::Hello(hello) => self.hello(hello, request_id).await,
            Command::Subscribe(context) => self.subscribe(context, request_id).await,
            Command::ProvidersList(_) => {
                self.answer(EventBody::ProvidersList(legacy::providers(request_id))).await;
                Ok(())
            }
            Command::ProjectList(_) => {
                self.answer(EventBody::ProjectList(legacy::no_projects(request_id))).await;
                Ok(())
            }
            command => {
                let ended_job = match &command {
                    Command::Terminate(JobRef { job_id }) if is_legacy => self.router.job(job_id),
                    _ => None,
                };
                let handled = self.router.handle(&self.requester, request_id.clone(), command).await;
                let answers = match (handled, ended_job) {
                    // Clients of the legacy dialect terminate every job in a list, including terminated ones.
                    (Err(rejected), Some(job)) if rejected.code == RejectCode::JobOver => {
                        vec![EventBody::JobTerminated(terminated(&job, request_id))]
                    }
                    (handled, _) => handled?,
                };
                for answer in answers {
                    self.answer(answer).await;
                }
                Ok(())
            }
        }
    }

    fn legacy_mode(&self) -> LegacyMode {
        let may_be_older = !self.is_admitted && self.access.legacy;
        LegacyMode {
            is_legacy: may_be_older || self.is_legacy.load(Ordering::Acquire),
            is_restricted: may_be_older || self.is_restricted,
        }
    }

    /// Registers a request id and rejects a duplicate.
    ///
    /// A duplicate of an injection is a retry and passes: the journal knows whether it is identical.
    fn register_request_id(&mut self, request_id: &str, is_injection: bool) -> Result<(), CommandRejected> {
        match self.seen.get(request_id) {
            Some(true) if is_injection => Ok(()),
            Some(_) => {
                let reason =
                    format!("request_id: '{}' was used before in this session", request_id.escape_debug());
                Err(reject(RejectCode::DuplicateRequestId, Some("request_id"), reason))
            }
            None => {
                self.seen.insert(request_id.to_owned(), is_injection);
                self.order.push_back(request_id.to_owned());
                if self.order.len() > MAX_REQUEST_IDS
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.seen.remove(&oldest);
                }
                Ok(())
            }
        }
    }

    /// Starts sending events from now on, unless the client has already subscribed.
    async fn start_events(&mut self) {
        if !std::mem::replace(&mut self.has_started, true) {
            let subscription = Subscription { jobs: None, requester: self.requester.clone() };
            let _ = self.answers.send(Outgoing::Start { subscription }).await;
        }
    }

    /// Adds the job of a command to the subscription, because the answer is among the job's events.
    ///
    /// Returns the job if it was added.
    fn follow_job(&self, command: &mut Command) -> Option<String> {
        let jobs = self.jobs.as_ref()?;
        let job = match command {
            Command::Launch(launch) => {
                Some(launch.job_id.get_or_insert_with(|| self.router.free_id().to_string()).clone())
            }
            Command::Inject(Inject { job_id, .. })
            | Command::Terminate(JobRef { job_id })
            | Command::Steer(Steer { job_id, .. }) => self.router.job(job_id).map(|job| job.id.to_string()),
            Command::Approve(asked) => {
                let job = self
                    .router
                    .jobs()
                    .into_iter()
                    .find(|job| job.approval_node(&asked.approval_id).is_some());
                job.map(|job| job.id.to_string())
            }
            _ => None,
        };
        let mut jobs = jobs.lock();
        let job = job.filter(|job| !jobs.contains(job))?;
        jobs.push(job.clone());
        Some(job)
    }

    /// Removes a job from the subscription after the command that added it was rejected.
    fn unfollow_job(&self, job: Option<String>) {
        if let (Some(jobs), Some(job)) = (&self.jobs, job) {
            jobs.lock().retain(|known| *known != job);
        }
    }

    /// Submits the batch of injections.
    ///
    /// The acknowledgement goes to the log, once the journal is on disk.
    async fn submit(&self, injections: &mut Injections) {
        let Injections { drafts, submitted } = std::mem::take(injections);
        if drafts.is_empty() {
            return;
        }
        let rejecting = |request_id, rejected| {
            EventBody::CommandRejected(CommandRejected { request_id: Some(request_id), ..rejected })
        };
        let accepted = self.router.submit(drafts).await;
        for (accepted, SubmittedInjection { request_id, node }) in accepted.into_iter().zip(submitted) {
            let answer = match accepted {
                Ok(accepted) if accepted.duplicate => {
                    let context = RequestContext { requester: &self.requester, request_id: &request_id };
                    duplicate_ack(context, &node, accepted.id.to_string())
                }
                Ok(Accepted { stopped: None, .. }) => continue,
                Ok(Accepted { stopped: Some(stop), .. }) => rejecting(request_id, reject_stopped(&stop)),
                Err(error) => rejecting(request_id, reject_submission(&error)),
            };
            self.answer(answer).await;
        }
    }

    async fn hello(&mut self, hello: Hello, request_id: String) -> Result<(), CommandRejected> {
        if !self.is_admitted || self.is_restricted {
            let presented = hello.token.as_deref().unwrap_or_default();
            let is = |known: &&AccessToken| bool::from(known.token.as_bytes().ct_eq(presented.as_bytes()));
            let Some(token) = self.access.tokens.iter().find(is) else {
                let reason = "payload.token: it is not the router's".to_owned();
                return Err(reject(RejectCode::NotAllowed, Some("payload.token"), reason));
            };
            self.requester.owner.clone_from(&token.owner);
            (self.is_admitted, self.is_restricted) = (true, false);
        }
        if let Some(client) = hello.client {
            let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            if !(1..=CLIENT).contains(&client.len()) || !client.bytes().all(is_plain) {
                let reason =
                    format!("payload.client: must have 1 to {CLIENT} letters, digits, '.', '_' or '-'");
                return Err(reject(RejectCode::BadField, Some("payload.client"), reason));
            }
            // Two owners may use the same client name without sharing a client.
            self.requester.client = match &self.requester.owner {
                Some(owner) => format!("{owner}.{client}"),
                None => client,
            };
        }
        if let Some(agent) = hello.agent {
            let name = Name::parse(&agent).map_err(|error| {
                reject(RejectCode::BadField, Some("payload.agent"), format!("payload.agent: {error}"))
            })?;
            // A program of this user may act as the person, but a program of another owner may not.
            let is_person = name.is_human() && self.requester.owner.is_some();
            if is_person || name.as_str().eq_ignore_ascii_case(HUB_NAME) {
                let reason = format!("payload.agent: you are not '{name}'; choose another name");
                return Err(reject(RejectCode::NotAllowed, Some("payload.agent"), reason));
            }
            if name.is_human() {
                self.refuse_agent("payload.agent", "write as the person").await?;
            }
            self.requester.agent = AgentId::local(name);
        }
        let log = self.router.log();
        let answer = HelloReply {
            request_id,
            server: "switchboard".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            protocols: vec![PROTOCOL.to_owned()],
            commands: COMMANDS.map(str::to_owned).to_vec(),
            agents: AgentKind::ALL.map(|kind| kind.as_str().to_owned()).to_vec(),
            max_line: self.router.config().max_line,
            oldest_seq: log.oldest(),
            newest_seq: log.newest(),
            client: self.requester.client.clone(),
        };
        self.answer(EventBody::Hello(answer)).await;
        Ok(())
    }

    /// Rejects an action that is reserved for the person if the client is an agent's process.
    async fn refuse_agent(&self, field: &str, action: &str) -> Result<(), CommandRejected> {
        let refuse = |detail: String| {
            let reason = format!("{field}: only a person may {action}, and {detail}");
            Err(reject(RejectCode::NotAllowed, Some(field), reason))
        };
        let (pid, peer) = (self.access.client_pid, self.access.peer);
        // Systems other than Linux run a program to list the ancestors.
        let found = tokio::task::spawn_blocking(move || {
            let of_peer = peer.map(|peer| peer.processes()).unwrap_or_default();
            let pids: Vec<u32> = pid.into_iter().chain(of_peer).collect();
            let evidence = pids.iter().find_map(|pid| Lineage::of_process(*pid).evidence());
            (pids.is_empty(), evidence.map(|evidence| evidence.to_string()))
        });
        match found.await {
            Ok((_, Some(evidence))) => refuse(format!("the client is an agent's process: {evidence}")),
            // A token identifies a client; a client without a token must have a known process.
            Ok((true, None)) if self.is_restricted => {
                refuse("the client's process is unknown; answer with `switchboard worker approve`".to_owned())
            }
            Ok(_) => Ok(()),
            Err(error) => refuse(error.to_string()),
        }
    }

    async fn subscribe(&mut self, command: Subscribe, request_id: String) -> Result<(), CommandRejected> {
        let log = self.router.log();
        let newest = log.newest();
        let from_seq = command.from_seq.unwrap_or(newest);
        if from_seq > newest {
            let reason =
                format!("payload.from_seq: there is no event {from_seq} yet; the newest is {newest}");
            return Err(reject(RejectCode::BadField, Some("payload.from_seq"), reason));
        }
        if from_seq + 1 < log.oldest() {
            let reason = format!(
                "payload.from_seq: events up to {} have expired; the oldest available is {}",
                log.oldest() - 1,
                log.oldest()
            );
            return Err(reject(RejectCode::CursorExpired, Some("payload.from_seq"), reason));
        }
        self.has_started = true;
        self.jobs = command.jobs.clone().map(|jobs| Arc::new(Mutex::new(jobs)));
        let subscription = Subscription { jobs: self.jobs.clone(), requester: self.requester.clone() };
        let answer = Subscribed { request_id, from_seq, jobs: command.jobs };
        let _ = self.answers.send(Outgoing::Subscribe { from_seq, subscription, answer }).await;
        Ok(())
    }

    /// Queues an answer; does nothing if the client has disconnected.
    async fn answer(&self, answer: EventBody) {
        let _ = self.answers.send(Outgoing::Answer(answer)).await;
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
