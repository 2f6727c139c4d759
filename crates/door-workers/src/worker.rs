//! Workers: one task per node that speaks an agent's protocol and reports to the node.
//!
//! A worker receives [`Order`]s and sends [`Report`]s, both over bounded channels. It knows nothing of jobs, queues,
//! events or timeouts; those belong to the node. When its task ends, its process has ended too.

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

/// Maximum number of open questions per agent. No client answers more; further questions are declined.
const MAX_OPEN_QUESTIONS: usize = 64;

/// Capacity of the order channel: one decision per open question, and a few more, because a node runs one turn at a
/// time.
const ORDER_QUEUE: usize = MAX_OPEN_QUESTIONS + 16;

/// Capacity of the report channel. When it is full, the worker waits, and so does its process.
const REPORT_QUEUE: usize = 1024;

/// Order to a worker.
#[derive(Debug)]
pub(crate) enum Order {
    /// Sends a prompt to the agent. Only while no turn runs.
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
        /// Confirmation, or the reason why it was not added.
        answer: oneshot::Sender<Result<(), String>>,
    },
    /// Interrupts the running turn.
    Interrupt,
    /// Answers a question.
    Decide {
        /// The worker's key of the question.
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
        /// Its process id, if the process outlives a turn.
        pid: Option<u32>,
        /// The agent's session id, to resume it later.
        session: Option<String>,
    },
    /// Outcome of the unconfirmed injection. Before `Ready`.
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
    /// A question. The worker chooses the key.
    Question {
        /// Key for the answer.
        key: u64,
        /// The question.
        question: Question,
    },
    /// The agent withdrew a question.
    QuestionClosed {
        /// The key of the question.
        key: u64,
    },
    /// Tokens of the turn so far.
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
        /// The status.
        status: TurnStatus,
        /// The reason.
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
    /// A question. The worker chooses the key.
    Question {
        /// Key for the answer.
        key: u64,
        /// The question.
        question: Question,
    },
    /// The turn has ended.
    Ended {
        /// The status.
        status: TurnStatus,
        /// The reason.
        error: Option<String>,
        /// The agent's last text.
        answer: Option<String>,
        /// Tokens used.
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
    /// Files are changed.
    FileChange { item_id: String, status: String, changes: Vec<Change> },
}

/// Outcome of an injection that was in flight when the router or the worker ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PromptOutcome {
    /// The agent did not receive the prompt: it can be sent again.
    NotReceived,
    /// The agent has answered.
    Answered { answer: Option<String> },
    /// The agent received the prompt and did not finish.
    Incomplete,
    /// The session does not show it.
    Unknown,
}

/// Parameters of a worker.
#[derive(Debug, Clone)]
pub(crate) struct WorkerSpec {
    pub(crate) launch: Arc<Launch>,
    /// The agent's name in the hub.
    pub(crate) name: Name,
    /// The workspace to which the worker belongs, independent of its working folder.
    pub(crate) workspace: PathBuf,
    pub(crate) cwd: PathBuf,
    pub(crate) log: Arc<WorkerLog>,
    pub(crate) guard: Option<ReaperClient>,
    pub(crate) grace: Duration,
    /// The agent's previous session, to resume.
    pub(crate) session: Option<String>,
    /// An injection for which it is unknown whether the agent received the prompt.
    pub(crate) unconfirmed: Option<String>,
}

/// Worker's end of the channels.
pub(crate) struct WorkerPipe {
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) reports: mpsc::Sender<Report>,
    pub(crate) stop: CancellationToken,
}

impl WorkerPipe {
    /// Sends a report; ignored if the node has ended, which also fires `stop`.
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

    /// Waits for the exit after the last report; returns how it ended.
    pub(crate) async fn wait_exit(self) -> String {
        self.task.await.unwrap_or_else(|error| format!("its task failed: {error}"))
    }

    /// Stops the worker gracefully, then by force; on return its process group has ended.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        // The worker may be blocked on a report.
        self.reports.close();
        while self.reports.recv().await.is_some() {}
        let limit = self.grace * 3 + Duration::from_secs(1);
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            // Dropping the task kills the whole process group.
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
