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
mod per_turn;
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

pub(crate) use self::log::{WorkerLog, is_log_file};
use crate::wire::command::{AgentKind, Decision, Launch};
use crate::wire::event::{Change, Question, Tokens, TurnStatus};

/// Most questions of an agent that wait at once. Nobody answers more than that; the answer to a further one is no.
const MAX_OPEN_QUESTIONS: usize = 64;

/// Most orders that lie ready for a worker: an answer to each question, and a few more, because a node gives one turn at a
/// time.
const ORDER_QUEUE: usize = MAX_OPEN_QUESTIONS + 16;

/// Most reports that lie ready for a node. A worker that is quicker waits, and so does its process.
const REPORT_QUEUE: usize = 1024;

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
    Reconciled(PromptOutcome),
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
    Activity(AgentActivity),
    /// A question. The key is the worker's own.
    Question {
        /// What to answer to.
        key: u64,
        /// What is asked.
        question: Question,
    },
    /// A question that needs no answer any more.
    QuestionClosed {
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
    OwnTurn(OwnTurnReport),
}

/// What a worker tells of a turn that the agent began itself, which no injection asked for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OwnTurnReport {
    /// The turn has begun.
    Started,
    /// Something the agent did in it.
    Activity(AgentActivity),
    /// A question. The key is the worker's own.
    Question {
        /// What to answer to.
        key: u64,
        /// What is asked.
        question: Question,
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
pub(crate) enum AgentActivity {
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
pub(crate) enum PromptOutcome {
    /// The agent never got it: it can be given again.
    NotReceived,
    /// The agent has answered.
    Answered { answer: Option<String> },
    /// The agent got it, and did not get to its end.
    Incomplete,
    /// The agent cannot tell.
    Unknown,
}

/// Where a worker works and what with.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSpec {
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
    pub(crate) unconfirmed: Option<String>,
}

/// A worker's end of the channels.
pub(crate) struct WorkerPipe {
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) stop: CancellationToken,
}

impl WorkerPipe {
    /// Reports. A node that is gone has no use for it, and will have said so by `stop`.
    pub(crate) async fn report(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    pub(crate) async fn report_end(&self, status: TurnStatus, error: Option<String>) {
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
    pub(crate) fn start(spec: WorkerSpec) -> Self {
        let (orders, ordered) = mpsc::channel(ORDER_QUEUE);
        let (reporter, reports) = mpsc::channel(REPORT_QUEUE);
        let (stop, grace) = (CancellationToken::new(), spec.grace);
        let pipe = WorkerPipe { orders: ordered, reports: reporter, stop: stop.clone() };
        let task = match spec.launch.agent {
            AgentKind::Echo => tokio::spawn(echo::run(spec, pipe)),
            AgentKind::Command => tokio::spawn(command::run(spec, pipe)),
            AgentKind::Codex => tokio::spawn(codex::run(spec, pipe)),
            AgentKind::CodexExec => tokio::spawn(codex_exec::run(spec, pipe)),
            AgentKind::Claude => tokio::spawn(claude::run(spec, pipe)),
            AgentKind::Acp | AgentKind::Gemini | AgentKind::Opencode | AgentKind::Goose => {
                tokio::spawn(acp::run(spec, pipe))
            }
        };
        Self { orders, reports, task, stop, grace }
    }

    /// How it ended, after its last report.
    pub(crate) async fn wait_exit(self) -> String {
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
pub(crate) fn default_program(agent: AgentKind) -> &'static [&'static str] {
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
