//! Notifier of the person: for new messages, it shows a desktop notification or runs a configured program.
//!
//! One program runs at a time and gets all messages since the last notification. The position is stored in the hub
//! before the program starts, so that no message is reported twice, even after a restart. Text of other agents reaches
//! the program as JSON on stdin or as a separate argument, never as part of a shell command.

use std::process::Stdio;
use std::time::Duration;

use door_workspace::Workspace;
use serde_json::{Value, json};
use switchboard_core::{AgentId, Door, escape_json_line};
use switchboard_hub::{Hub, MailboxMessage, MailboxQuery, Part};
use switchboard_sys::process::Spawn;
use tokio::io::AsyncWriteExt;
use tokio_util::sync::CancellationToken;

use crate::failure::Failure;
use crate::show::plain;

/// Topic of the hub's note that stores the position of the last reported message.
const TOPIC: &str = "notified";

/// Maximum number of messages listed in one notification; beyond it only their number is reported.
const MAX_LISTED: usize = 20;

/// Maximum characters of a message in a notification.
const PREVIEW_CHARS: usize = 300;

/// Timeout of the notification program. A program that hangs is killed, and the next message starts it again.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before a retry after an error.
const ERROR_DELAY: Duration = Duration::from_secs(5);

/// Settings of the notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotifyConfig {
    pub(crate) method: NotifyMethod,
    /// Minimum time between two notifications. Messages that arrive meanwhile are batched into the next one.
    pub(crate) pause: Duration,
}

/// Method by which the person is notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotifyMethod {
    /// A program and its arguments; it gets JSON on stdin.
    Command(Vec<String>),
    /// Desktop notifications.
    Desktop,
}

impl NotifyConfig {
    /// Default minimum time between two notifications.
    pub(crate) const PAUSE: Duration = Duration::from_secs(5);
}

/// Notifies the person of new messages until `shutdown`.
pub(crate) async fn run(config: NotifyConfig, workspace: Workspace, shutdown: CancellationToken) {
    let notify = async {
        let mut changes = workspace.hub().changes();
        loop {
            match notify_new(&config, workspace.hub()).await {
                Ok(true) => tokio::time::sleep(config.pause).await,
                Ok(false) => changes.next().await,
                Err(failure) => {
                    tracing::warn!("the person could not be notified: {}", failure.message);
                    tokio::time::sleep(ERROR_DELAY).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(notify).await;
}

/// Sends one notification for all new messages; returns false if there are none.
async fn notify_new(config: &NotifyConfig, hub: &Hub) -> Result<bool, Failure> {
    let human = AgentId::human();
    let notes = hub.notes(Door::Workspace).all(TOPIC).await?;
    let cursor = notes.iter().find(|(key, _)| key == "cursor").and_then(|(_, seq)| seq.parse().ok());
    let Some(after) = cursor else {
        // Messages from before the first start are not reported, so start at the newest one.
        let last = hub.journal().newest(1).await?.items.last().map_or(0, |stored| stored.seq);
        note(hub, last).await?;
        return Ok(false);
    };
    let query = MailboxQuery { agent: human.clone(), after, limit: MAX_LISTED, part: Part::Unseen };
    let page = hub.mailboxes().page(query).await?;
    let Some(newest) = page.items.last().map(|mail| mail.stored.seq) else { return Ok(false) };
    // One notification covers all new messages, even those that it does not list.
    let newest = if page.more {
        hub.mailboxes().newest_waiting(human.clone()).await?.unwrap_or(newest)
    } else {
        newest
    };
    let unread = hub.mailboxes().count(human, Part::Unseen, 1000).await?;
    note(hub, newest).await?;
    start(&config.method, &page.items, unread).await?;
    Ok(true)
}

async fn note(hub: &Hub, seq: i64) -> Result<(), Failure> {
    Ok(hub.notes(Door::Workspace).put(TOPIC, "cursor".to_owned(), Some(seq.to_string())).await?)
}

async fn start(method: &NotifyMethod, mail: &[MailboxMessage], unread: usize) -> Result<(), Failure> {
    let (program, args, input) = match method {
        NotifyMethod::Command(command) => {
            let (program, args) = command.split_first().map_or(("", &[][..]), |(p, args)| (p.as_str(), args));
            (
                program.to_owned(),
                args.to_vec(),
                Some(escape_json_line(&object(mail, unread).to_string()).into_owned() + "\n"),
            )
        }
        NotifyMethod::Desktop => {
            let (program, args) = desktop(&summary(mail), &preview(mail));
            (program.to_owned(), args, None)
        }
    };
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let spawn = Spawn::new(&program).args(args).stdin(stdin);
    let spawn = spawn.env_allow(&["DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"]);
    let mut child = spawn.spawn().map_err(anyhow::Error::from)?;
    let work = async {
        if let (Some(input), Some(mut stdin)) = (input, child.stdin_writer()) {
            // Ignore the error: a program may close its stdin without reading it.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
        child.wait().await
    };
    match tokio::time::timeout(PROGRAM_TIMEOUT, work).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => tracing::warn!(program, "the program that notifies ended with {status}"),
        Ok(Err(error)) => return Err(anyhow::Error::from(error).into()),
        Err(_) => tracing::warn!(program, "the program that notifies took too long and was ended"),
    }
    Ok(())
}

/// Renders the JSON for the program. Scripts rely on the key names.
fn object(mail: &[MailboxMessage], unread: usize) -> Value {
    let render = |mail: &MailboxMessage| {
        let message = &mail.stored.message;
        let body: String = message.body.chars().take(PREVIEW_CHARS).collect();
        json!({
            "id": message.id.to_string(),
            "native_id": door_workspace::native_id(message),
            "from": message.from.to_string(),
            "kind": message.kind.as_str(),
            "body": body,
            "sent_at": message.sent_at.to_string(),
            "verified": message.origin.verified,
            "trust": message.trust().label(),
        })
    };
    json!({ "summary": summary(mail), "unread": unread, "messages": mail.iter().map(render).collect::<Vec<_>>() })
}

/// Summarizes the messages in one line.
fn summary(mail: &[MailboxMessage]) -> String {
    let mut names: Vec<String> = Vec::new();
    for name in mail.iter().map(|mail| mail.stored.message.from.to_string()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let messages = if mail.len() == 1 { "1 message".to_owned() } else { format!("{} messages", mail.len()) };
    format!("Switchboard: {messages} from {}", names.join(", "))
}

/// Returns the beginning of the first message, on a single line.
fn preview(mail: &[MailboxMessage]) -> String {
    let first = mail.first().map(|mail| mail.stored.message.body.as_str()).unwrap_or_default();
    plain(&first.chars().take(PREVIEW_CHARS).collect::<String>()).replace('\n', " ")
}

/// Returns the program that shows a desktop notification, and its arguments.
fn desktop(title: &str, text: &str) -> (&'static str, Vec<String>) {
    if cfg!(target_os = "macos") {
        let script =
            "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run";
        return ("osascript", ["-e", script, title, text].map(str::to_owned).into());
    }
    // Escape the text, because some desktops interpret markup.
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    ("notify-send", ["--app-name=Switchboard", "--", title, &text].map(str::to_owned).into())
}
