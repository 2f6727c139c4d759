//! Workers: one task per node that speaks an agent's own protocol and reports in ours.
//!
//! A worker is told [`Order`]s and tells [`Report`]s, both over bounded channels. It knows nothing of jobs,
//! queues, events or time-outs; those are the node's. When its task ends, so has its process.

mod acp;
mod claude;
mod codex;
mod codex_exec;
mod command;
mod echo;
mod log;
mod once;
mod program;
mod rpc;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use switchboard_core::Name;
use switchboard_sys::guard::Guard;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::log::{WorkerLog, is_log};
use crate::wire::command::{AgentKind, Decision, Launch};
use crate::wire::event::{Ask, Change, Tokens, TurnStatus};

/// Most questions of an agent that wait at once. Nobody answers more than that; the answer to a further one is no.
const ASKS: usize = 64;

/// Most orders that lie ready for a worker: an answer to each question, and a few more, because a node gives one turn at a
/// time.
const ORDERS: usize = ASKS + 16;

/// Most reports that lie ready for a node. A worker that is quicker waits, and so does its process.
const REPORTS: usize = 1024;

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Give the agent a prompt. Only when no turn runs.
    Turn {
        /// The injection, which the agent is told where it can keep it.
        injection: String,
        /// The prompt.
        content: String,
    },
    /// Add to the turn that runs.
    Steer {
        /// What to add.
        content: String,
        /// Whether that was possible.
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// Stop the turn that runs.
    Interrupt,
    /// Answer a question.
    Decide {
        /// Which one.
        key: u64,
        /// The answer.
        decision: Decision,
    },
}

/// What a worker tells.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Report {
    /// The agent is there and waits for a prompt.
    Ready {
        /// Its process, where it is one that stays.
        pid: Option<u32>,
        /// What the agent calls the conversation, to go on with it later.
        session: Option<String>,
    },
    /// What became of the injection of which it was not known whether the agent had got it. Before `Ready`.
    Doubt(Fate),
    /// The agent has accepted the prompt.
    Accepted,
    /// The turn has begun.
    Started,
    /// A piece of the answer.
    Delta(String),
    /// A piece of what the agent thinks.
    Reasoning(String),
    /// The whole answer, so far as there is one.
    Answer(String),
    /// Something the agent did.
    Happened(Happening),
    /// A question. The key is the worker's own.
    Ask {
        /// What to answer to.
        key: u64,
        /// What is asked.
        ask: Ask,
    },
    /// A question that needs no answer any more.
    AskGone {
        /// Which one.
        key: u64,
    },
    /// What the turn has used so far.
    Usage(Tokens),
    /// Something went wrong.
    Error {
        /// What.
        error: String,
        /// Whether the agent tries again by itself.
        will_retry: bool,
    },
    /// The turn is over.
    Ended {
        /// How.
        status: TurnStatus,
        /// Why.
        error: Option<String>,
    },
    /// Something in a turn that the agent began itself.
    Own(OwnReport),
}

/// What a worker tells of a turn that the agent began itself, which no injection asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OwnReport {
    /// The turn has begun.
    Started,
    /// Something the agent did in it.
    Happened(Happening),
    /// A question. The key is the worker's own.
    Ask {
        /// What to answer to.
        key: u64,
        /// What is asked.
        ask: Ask,
    },
    /// The turn is over.
    Ended {
        /// How.
        status: TurnStatus,
        /// Why.
        error: Option<String>,
        /// What the agent said last in it.
        answer: Option<String>,
        /// What it has used.
        tokens: Option<Tokens>,
    },
}

/// What an agent did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Happening {
    /// It runs a command, or uses a tool.
    CommandStarted { item_id: String, command: String, cwd: Option<String> },
    /// That has ended.
    CommandCompleted {
        item_id: String,
        command: String,
        status: String,
        exit_code: Option<i64>,
        output: Option<String>,
    },
    /// It changes files.
    FileChange { item_id: String, status: String, changes: Vec<Change> },
}

/// What became of an injection that was under way when the router or the worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The agent never got it: it can be given again.
    NotReceived,
    /// The agent has answered.
    Answered { answer: Option<String> },
    /// The agent got it, and did not get to its end.
    CutShort,
    /// The agent cannot tell.
    Unknown,
}

/// Where a worker works and what with.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    pub(crate) launch: Arc<Launch>,
    /// The agent that it is.
    pub(crate) name: Name,
    /// The folder of the workspace that it belongs to, wherever it works.
    pub(crate) workspace: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) log: Arc<WorkerLog>,
    pub(crate) guard: Option<Guard>,
    pub(crate) grace: Duration,
    /// What the agent called the conversation before.
    pub(crate) session: Option<String>,
    /// An injection of which it is not known whether the agent had got it.
    pub(crate) doubt: Option<String>,
}

/// A worker's end of the channels.
pub(crate) struct Link {
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) stop: CancellationToken,
}

impl Link {
    /// Reports. A node that is gone has no use for it, and will have said so by `stop`.
    pub(crate) async fn report(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    pub(crate) async fn ended(&self, status: TurnStatus, error: Option<String>) {
        self.report(Report::Ended { status, error }).await;
    }
}

/// A worker at work.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) reports: mpsc::Receiver<Report>,
    task: JoinHandle<String>,
    stop: CancellationToken,
    grace: Duration,
}

impl Worker {
    /// Starts the worker of an agent.
    pub(crate) fn start(seat: Seat) -> Self {
        let (orders, ordered) = mpsc::channel(ORDERS);
        let (reporter, reports) = mpsc::channel(REPORTS);
        let (stop, grace) = (CancellationToken::new(), seat.grace);
        let link = Link { orders: ordered, reports: reporter, stop: stop.clone() };
        let task = match seat.launch.agent {
            AgentKind::Echo => tokio::spawn(echo::run(seat, link)),
            AgentKind::Command => tokio::spawn(command::run(seat, link)),
            AgentKind::Codex => tokio::spawn(codex::run(seat, link)),
            AgentKind::CodexExec => tokio::spawn(codex_exec::run(seat, link)),
            AgentKind::Claude => tokio::spawn(claude::run(seat, link)),
            AgentKind::Acp | AgentKind::Gemini | AgentKind::Opencode | AgentKind::Goose => {
                tokio::spawn(acp::run(seat, link))
            }
        };
        Self { orders, reports, task, stop, grace }
    }

    /// How it ended, after its last report.
    pub(crate) async fn ending(self) -> String {
        self.task.await.unwrap_or_else(|error| format!("its task failed: {error}"))
    }

    /// Ends it, politely at first; its process and all that it started is gone on return.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        // It may be waiting to report.
        self.reports.close();
        while self.reports.recv().await.is_some() {}
        let limit = self.grace * 3 + Duration::from_secs(1);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            // What it holds is dropped, and with it the whole process group.
            self.task.abort();
            let _ = self.task.await;
        }
    }
}

/// What is run for an agent where its launch names no program; nothing where it has to.
pub(crate) fn usual_program(agent: AgentKind) -> &'static [&'static str] {
    match agent {
        AgentKind::Codex | AgentKind::CodexExec => &["codex"],
        AgentKind::Claude => &["claude"],
        AgentKind::Gemini => &["gemini", "--acp"],
        AgentKind::Opencode => &["opencode", "acp"],
        AgentKind::Goose => &["goose", "acp"],
        AgentKind::Acp | AgentKind::Command | AgentKind::Echo => &[],
    }
}

#[cfg(test)]
#[path = "worker/agents_tests.rs"]
mod agents_tests;

#[cfg(test)]
#[path = "worker/claude_tests.rs"]
mod claude_tests;

#[cfg(test)]
#[path = "worker/transcript_tests.rs"]
mod transcript_tests;

#[cfg(test)]
#[path = "worker/scripted_tests.rs"]
mod scripted_tests;
