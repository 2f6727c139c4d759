//! Selection of the messages and notices to type into the terminal.

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use door_workspace::{
    ExecuteRequest, ExecuteResult, Notices, Obstacle, TerminalExecutor, TerminalRegistration, WorkspaceError,
};
use switchboard_core::MessageId;
use switchboard_sys::platform;
use switchboard_sys::process_identity::ProcessIdentity;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::keyboard::{Turn, TypeCondition, TypeOutcome};

/// Heartbeat interval at which the agent's presence is refreshed.
const HEARTBEAT_INTERVAL: Duration = Duration::from_mins(1);

/// Delay after a failed read or write of the journal or a file.
const ERROR_DELAY: Duration = Duration::from_secs(1);

/// How long a message must be blocked by the same obstacle before its sender is notified.
const BLOCKED_NOTICE_DELAY: Duration = Duration::from_secs(1);

/// Initial backoff after a typed text did not appear in the input field; it doubles up to `LONGEST_BACKOFF`.
const BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_mins(1);

/// Delay before a notice that could not be typed is tried again.
const NOTICE_PAUSE: Duration = Duration::from_secs(2);

/// The keyboard has ended with the program.
struct KeyboardClosed;

/// Registers the terminal, refreshes its presence, and types messages until the program exits.
pub(super) async fn type_mail(
    post: TerminalExecutor,
    pid: u32,
    notify: bool,
    turns: mpsc::Sender<Turn>,
    is_typing: &Cell<bool>,
) {
    let workspace = post.workspace().clone();
    let agent = post.agent().clone();
    let owner = Some(ProcessIdentity::this_process());
    let registration =
        TerminalRegistration { owner, ..TerminalRegistration::new(agent.name.clone(), pid, "agent") };
    // If the program exited at once, the registration is no longer needed.
    if let Err(error) = workspace.register_terminal(registration).await
        && platform::process_started(pid).is_some()
    {
        tracing::warn!(error = %error, "cannot register the terminal in state.json; messages can still be typed into it");
    }
    let alive = async {
        let mut beat = tokio::time::interval(HEARTBEAT_INTERVAL);
        loop {
            beat.tick().await;
            workspace.hub().agents().announce(agent.clone(), "active", None);
            workspace.record_heartbeat(&agent).await;
        }
    };
    let notices = notify.then(|| Notices::new(&post));
    tokio::select! {
        () = alive => {}
        KeyboardClosed = type_executes(post, &turns, is_typing) => {}
        KeyboardClosed = type_notices(notices, &turns) => {}
    }
}

async fn type_executes(
    mut post: TerminalExecutor,
    turns: &mpsc::Sender<Turn>,
    is_typing: &Cell<bool>,
) -> KeyboardClosed {
    let mut retry = Retry::default();
    loop {
        let typed = match post.next().await {
            Ok(execute) => type_execute(&mut post, &execute, turns, is_typing, &mut retry).await,
            Err(error) => Err(error),
        };
        is_typing.set(false);
        match typed {
            Ok(Some(KeyboardClosed)) => return KeyboardClosed,
            Ok(None) => sleep(retry.pause).await,
            Err(error) => {
                tracing::warn!(error = %error, "mail could not be typed");
                sleep(ERROR_DELAY).await;
            }
        }
    }
}

/// Backoff for a message whose text does not appear.
#[derive(Debug, Default)]
struct Retry {
    message: Option<MessageId>,
    pause: Duration,
}

impl Retry {
    /// Updates the delay after an attempt to type a message.
    fn note(&mut self, message: MessageId, typed: &TypeOutcome) {
        let was_pasted = matches!(typed, TypeOutcome::NotYet(Obstacle::NotEchoed | Obstacle::NotRemoved));
        self.pause = match (was_pasted, self.message == Some(message)) {
            (false, _) => Duration::ZERO,
            (true, true) => (self.pause * 2).clamp(BACKOFF, LONGEST_BACKOFF),
            (true, false) => BACKOFF,
        };
        self.message = was_pasted.then_some(message);
    }
}

/// Types one execute message.
///
/// The attempt is recorded on disk after the turn is granted and before the first byte is typed. While the program
/// shows no empty input field, the message waits in the mailbox like any other, and its sender can query the reason.
async fn type_execute(
    post: &mut TerminalExecutor,
    execute: &ExecuteRequest,
    turns: &mpsc::Sender<Turn>,
    is_typing: &Cell<bool>,
    retry: &mut Retry,
) -> Result<Option<KeyboardClosed>, WorkspaceError> {
    let Some(mut request) = TurnRequest::send(turns, TypeCondition::LineIsFree).await else {
        return Ok(Some(KeyboardClosed));
    };
    let waits = async {
        loop {
            let obstacle = request.blocked.wait_long().await;
            post.record_waiting(execute, &obstacle.to_string()).await?;
        }
    };
    let turn = tokio::select! {
        turn = request.granted => turn,
        failed = waits => return failed,
    };
    if turn.is_err() {
        return Ok(Some(KeyboardClosed));
    }
    is_typing.set(true);
    if !post.start(execute).await? {
        return Ok(None);
    }
    let typed = request.turn.type_text(execute.text.clone()).await.unwrap_or_else(|| {
        TypeOutcome::Failed(
            "the program ended while it was being typed, or the turn to type was over".to_owned(),
        )
    });
    retry.note(execute.message.id, &typed);
    match typed {
        TypeOutcome::Done => post.finish(execute, ExecuteResult::Executed).await?,
        TypeOutcome::Failed(reason) => post.finish(execute, ExecuteResult::Failed { reason }).await?,
        TypeOutcome::NotYet(obstacle) => post.requeue(execute, &obstacle.to_string()).await?,
    }
    Ok(None)
}

async fn type_notices(notices: Option<Notices>, turns: &mpsc::Sender<Turn>) -> KeyboardClosed {
    let Some(mut notices) = notices else { return pending().await };
    loop {
        if let Err(error) = notices.wait().await {
            tracing::warn!(error = %error, "the mailbox could not be read");
            sleep(ERROR_DELAY).await;
            continue;
        }
        let Some(request) = TurnRequest::send(turns, TypeCondition::AllIsQuiet).await else {
            return KeyboardClosed;
        };
        if request.granted.await.is_err() {
            return KeyboardClosed;
        }
        // Build the notice now: messages may have arrived or been read while it waited for its turn.
        let typed = match notices.next_notice().await {
            Ok(Some(notice)) => match request.turn.type_text(notice.text.clone()).await {
                // The notice is retried, because its messages still count as new.
                Some(TypeOutcome::NotYet(_)) => {
                    drop(notice);
                    sleep(NOTICE_PAUSE).await;
                    Ok(())
                }
                Some(TypeOutcome::Done | TypeOutcome::Failed(_)) | None => notices.finish(notice).await,
            },
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = typed {
            tracing::warn!(error = %error, "a notice of mail could not be typed");
            sleep(ERROR_DELAY).await;
        }
    }
}

/// A requested turn at the keyboard.
struct TurnRequest {
    granted: oneshot::Receiver<()>,
    blocked: Blocked,
    turn: GrantedTurn,
}

/// The granted turn.
struct GrantedTurn {
    text: oneshot::Sender<Option<String>>,
    typed: oneshot::Receiver<TypeOutcome>,
}

/// Why a request still waits.
struct Blocked(watch::Receiver<Option<Obstacle>>);

impl Blocked {
    /// Waits until the same obstacle has lasted for [`BLOCKED_NOTICE_DELAY`], and returns it.
    async fn wait_long(&mut self) -> Obstacle {
        let Self(reasons) = self;
        let mut since: Option<Instant> = None;
        loop {
            let due = since.map(|since| since + BLOCKED_NOTICE_DELAY);
            tokio::select! {
                changed = reasons.changed() => match changed {
                    Ok(()) => since = Some(Instant::now()),
                    Err(_) => return pending().await,
                },
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    since = None;
                    if let Some(obstacle) = *reasons.borrow() {
                        return obstacle;
                    }
                }
            }
        }
    }
}

impl TurnRequest {
    /// Requests a turn; returns `None` if the keyboard has closed.
    async fn send(turns: &mpsc::Sender<Turn>, when: TypeCondition) -> Option<Self> {
        let (granted, is_granted) = oneshot::channel();
        let (blocked, reasons) = watch::channel(None);
        let (text, receiver) = oneshot::channel();
        let (answer, typed) = oneshot::channel();
        turns.send(Turn { when, blocked, granted, text: receiver, typed: answer }).await.ok()?;
        Some(Self { granted: is_granted, blocked: Blocked(reasons), turn: GrantedTurn { text, typed } })
    }
}

impl GrantedTurn {
    /// Types the text; returns `None` if the keyboard has closed or did not wait for the text.
    async fn type_text(self, text: String) -> Option<TypeOutcome> {
        self.text.send(Some(text)).ok()?;
        self.typed.await.ok()
    }
}
