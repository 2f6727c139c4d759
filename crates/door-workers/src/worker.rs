//! Workers: one task per node that speaks an agent's protocol and reports to the node.
//!
//! A worker receives [`Order`]s and sends [`Report`]s, both over bounded channels. It knows nothing of jobs, queues,
//! events or timeouts, which are the node's responsibility. When the task of a worker has ended, the worker's process
//! has ended too.

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
use switchboard_sys::reaper::ReaperClient;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) use self::log::{WorkerLog, is_log_file};
use crate::wire::command::{AgentKind, Decision, Launch};
use crate::wire::event::{Change, Question, Tokens, TurnStatus};

/// Maximum number of open questions per agent.
///
/// No client answers more questions at a time, so further ones are declined.
const MAX_OPEN_QUESTIONS: usize = 64;

/// Capacity of the order channel.
///
/// It holds one decision per open question and a few other orders, because a node runs only one turn at a time.
const ORDER_QUEUE: usize = MAX_OPEN_QUESTIONS + 16;

/// Capacity of the report channel.
///
/// When the channel is full, the worker waits, and so does its process (backpressure).
const REPORT_QUEUE: usize = 1024;

/// Order to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Sends a prompt to the agent. Allowed only while no turn runs.
    Turn {
        /// The injection id, passed to agents that can store it.
        injection: String,
        /// The prompt.
        content: String,
    },
    /// Adds text to the running turn.
    Steer {
        /// The text.
        content: String,
        /// Receives a confirmation, or the reason why the text was not added.
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// Interrupts the running turn.
    Interrupt,
    /// Answers a question.
    Decide {
        /// The worker's key for the question.
        key: u64,
        /// The decision.
        decision: Decision,
    },
}

/// Report of a worker.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Report {
    /// The agent is ready for a prompt.
    Ready {
        /// Process id of the agent, if the process outlives a turn.
        pid: Option<u32>,
        /// The agent's session id, with which the session can be resumed.
        session: Option<String>,
    },
    /// Outcome of the unconfirmed injection, sent before `Ready`.
    Reconciled(PromptOutcome),
    /// The agent has accepted the prompt.
    Accepted,
    /// The turn has started.
    Started,
    /// A delta of the answer.
    Delta(String),
    /// A delta of the agent's reasoning.
    Reasoning(String),
    /// The full answer so far.
    Answer(String),
    /// An activity of the agent.
    Activity(AgentActivity),
    /// The agent asks a question. The worker chooses its key.
    Question {
        /// Key with which the answer refers to the question.
        key: u64,
        /// The question.
        question: Question,
    },
    /// The agent withdrew a question.
    QuestionClosed {
        /// The key of the question.
        key: u64,
    },
    /// Tokens that the turn has used so far.
    Usage(Tokens),
    /// The agent reported an error.
    Error {
        /// The error.
        error: String,
        /// True if the agent retries by itself.
        will_retry: bool,
    },
    /// The turn has ended.
    Ended {
        /// How the turn ended.
        status: TurnStatus,
        /// The reason, unless the turn completed.
        error: Option<String>,
    },
    /// A report about a turn that the agent started itself.
    OwnTurn(OwnTurnReport),
}

/// Report about a turn that the agent started itself, without an injection.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OwnTurnReport {
    /// The turn has started.
    Started,
    /// An activity of the agent.
    Activity(AgentActivity),
    /// The agent asks a question. The worker chooses its key.
    Question {
        /// Key with which the answer refers to the question.
        key: u64,
        /// The question.
        question: Question,
    },
    /// The turn has ended.
    Ended {
        /// How the turn ended.
        status: TurnStatus,
        /// The reason, unless the turn completed.
        error: Option<String>,
        /// The agent's last text.
        answer: Option<String>,
        /// Tokens that the turn used.
        tokens: Option<Tokens>,
    },
}

/// Activity of an agent during a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AgentActivity {
    /// A command or tool has started.
    CommandStarted { item_id: String, command: String, cwd: Option<String> },
    /// A command or tool has ended.
    CommandCompleted {
        item_id: String,
        command: String,
        status: String,
        exit_code: Option<i64>,
        output: Option<String>,
    },
    /// The agent changes files.
    FileChange { item_id: String, status: String, changes: Vec<Change> },
}

/// Outcome of an injection that was in flight when the router or the worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptOutcome {
    /// The agent did not receive the prompt, so the prompt can be sent again.
    NotReceived,
    /// The agent has answered.
    Answered { answer: Option<String> },
    /// The agent received the prompt but did not finish its turn.
    Incomplete,
    /// The session does not show whether the agent received the prompt.
    Unknown,
}

/// Parameters of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSpec {
    pub(crate) launch: Arc<Launch>,
    /// The agent's name in the hub.
    pub(crate) name: Name,
    /// The workspace to which the worker belongs, whatever its working folder.
    pub(crate) workspace: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) log: Arc<WorkerLog>,
    pub(crate) guard: Option<ReaperClient>,
    pub(crate) grace: Duration,
    /// The agent's previous session, which the worker resumes.
    pub(crate) session: Option<String>,
    /// An injection for which it is unknown whether the agent received the prompt.
    pub(crate) unconfirmed: Option<String>,
}

/// The worker's end of the order and report channels.
pub(crate) struct WorkerPipe {
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) stop: CancellationToken,
}

impl WorkerPipe {
    /// Sends a report. Does nothing if the node has ended, in which case `stop` fires as well.
    pub(crate) async fn report(&self, report: Report) {
        let _ = self.reports.send(report).await;
    }

    pub(crate) async fn report_end(&self, status: TurnStatus, error: Option<String>) {
        self.report(Report::Ended { status, error }).await;
    }
}

/// Handle to a running worker.
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

    /// Waits for the worker to exit after its last report; returns how the worker ended.
    pub(crate) async fn wait_exit(self) -> String {
        self.task.await.unwrap_or_else(|error| format!("its task failed: {error}"))
    }

    /// Stops the worker gracefully, then by force.
    ///
    /// When this returns, the worker's process group has ended.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        // Closing the channel unblocks a worker that waits to send a report.
        self.reports.close();
        while self.reports.recv().await.is_some() {}
        let limit = self.grace * 3 + Duration::from_secs(1);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            // Dropping the task kills the worker's whole process group.
            self.task.abort();
            let _ = self.task.await;
        }
    }
}

/// Returns the default command of an agent; empty if the launch must name a program.
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
