//! What there is to type into the terminal, from the agent's mailbox.

use std::cell::Cell;
use std::future::pending;
use std::time::Duration;

use door_workspace::{Execute, ExecuteResult, Notices, TerminalPost, TerminalRegistration, WorkspaceError};
use switchboard_hub::owner::Owner;
use tokio::sync::{mpsc, oneshot};

use super::keyboard::{Turn, When};

/// How often the agent is said to be there.
const ALIVE: Duration = Duration::from_mins(1);

/// How long to wait after the journal or a file could not be read or written.
const TROUBLE: Duration = Duration::from_secs(1);

/// The keyboard is no longer there: the program has ended.
struct Over;

/// Registers the terminal, says that it is alive, and types what comes. Returns when the program has ended.
pub(super) async fn type_mail(
    post: TerminalPost,
    pid: u32,
    notify: bool,
    turns: mpsc::Sender<Turn>,
    is_typing: &Cell<bool>,
) {
    let workspace = post.workspace().clone();
    let agent = post.agent().clone();
    let owner = Some(Owner::this_process());
    let registration =
        TerminalRegistration { owner, ..TerminalRegistration::new(agent.name.clone(), pid, "agent") };
    if let Err(error) = workspace.register_terminal(registration).await {
        tracing::warn!(error = %error, "the terminal could not be registered; mail is typed all the same");
    }
    let alive = async {
        let mut beat = tokio::time::interval(ALIVE);
        loop {
            beat.tick().await;
            workspace.hub().announce(agent.clone(), "active", None);
            workspace.note_alive(&agent).await;
        }
    };
    let notices = notify.then(|| Notices::new(&post));
    tokio::select! {
        () = alive => {}
        Over = type_executes(post, &turns, is_typing) => {}
        Over = type_notices(notices, &turns) => {}
    }
}

async fn type_executes(mut post: TerminalPost, turns: &mpsc::Sender<Turn>, is_typing: &Cell<bool>) -> Over {
    loop {
        let typed = match post.next().await {
            Ok(execute) => type_execute(&mut post, &execute, turns, is_typing).await,
            Err(error) => Err(error),
        };
        is_typing.set(false);
        match typed {
            Ok(Some(Over)) => return Over,
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(error = %error, "mail could not be typed");
                tokio::time::sleep(TROUBLE).await;
            }
        }
    }
}

/// Types one message. It is noted on disk when the keyboard is ours and before the first byte: while the
/// person types it waits in the mailbox like any other.
async fn type_execute(
    post: &mut TerminalPost,
    execute: &Execute,
    turns: &mpsc::Sender<Turn>,
    is_typing: &Cell<bool>,
) -> Result<Option<Over>, WorkspaceError> {
    let Some(turn) = Asked::ask(turns, When::LineIsFree).await else { return Ok(Some(Over)) };
    is_typing.set(true);
    if !post.begin(execute).await? {
        return Ok(None);
    }
    let result = match turn.type_text(execute.text.clone()).await {
        Some(Ok(())) => ExecuteResult::Executed,
        Some(Err(reason)) => ExecuteResult::Failed { reason },
        None => ExecuteResult::Failed {
            reason: "the program ended while it was being typed, or the turn to type was over".to_owned(),
        },
    };
    post.finish(execute, result).await?;
    Ok(None)
}

async fn type_notices(notices: Option<Notices>, turns: &mpsc::Sender<Turn>) -> Over {
    let Some(mut notices) = notices else { return pending().await };
    loop {
        if let Err(error) = notices.wait().await {
            tracing::warn!(error = %error, "the mailbox could not be read");
            tokio::time::sleep(TROUBLE).await;
            continue;
        }
        let Some(turn) = Asked::ask(turns, When::AllIsQuiet).await else { return Over };
        // More may have come, or all been read, while it waited for its turn.
        match notices.take().await {
            Ok(Some(text)) => drop(turn.type_text(text).await),
            Ok(None) => {}
            Err(error) => tracing::warn!(error = %error, "a notice of mail could not be typed"),
        }
    }
}

/// A turn at the keyboard that was granted.
struct Asked {
    text: oneshot::Sender<Option<String>>,
    typed: oneshot::Receiver<Result<(), String>>,
}

impl Asked {
    /// Waits for a turn; none where the keyboard is gone.
    async fn ask(turns: &mpsc::Sender<Turn>, when: When) -> Option<Self> {
        let (granted, is_granted) = oneshot::channel();
        let (text, said) = oneshot::channel();
        let (answer, typed) = oneshot::channel();
        turns.send(Turn { when, granted, text: said, typed: answer }).await.ok()?;
        is_granted.await.ok()?;
        Some(Self { text, typed })
    }

    /// Types; none where the keyboard is gone or did not wait.
    async fn type_text(self, text: String) -> Option<Result<(), String>> {
        self.text.send(Some(text)).ok()?;
        self.typed.await.ok()
    }
}
