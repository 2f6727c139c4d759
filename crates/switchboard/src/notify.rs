//! Telling the person of new mail: a desktop notification, or any program of theirs.
//!
//! One program runs at a time and is told of everything that has come since the last; how far that was is noted in the
//! hub before it starts, so that nobody is told twice, after a restart either. What others wrote reaches the program as
//! JSON on its stdin, or as an argument of its own, and never as part of a command line.

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

/// Under this topic the hub remembers up to where the person was told.
const TOPIC: &str = "notified";

/// Most messages that are told of at once; of more the number is told.
const MOST: usize = 20;

/// How much of a message is part of a notification.
const PREVIEW: usize = 300;

/// How long a program may take. One that hangs is ended, and the next message starts another.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait after something went wrong.
const TROUBLE: Duration = Duration::from_secs(5);

/// How the person is notified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotifyConfig {
    pub(crate) how: How,
    /// The shortest time between two notifications: what comes meanwhile is told at once.
    pub(crate) pause: Duration,
}

/// By what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    /// A program and its arguments, with JSON on its stdin.
    Command(Vec<String>),
    /// The desktop's own notifications.
    Desktop,
}

impl NotifyConfig {
    /// As often as a person wants to look up.
    pub(crate) const PAUSE: Duration = Duration::from_secs(5);
}

/// Notifies the person of mail until `shutdown`.
pub(crate) async fn run(config: NotifyConfig, workspace: Workspace, shutdown: CancellationToken) {
    let told = async {
        let mut changes = workspace.hub().changes();
        loop {
            match tell(&config, workspace.hub()).await {
                Ok(true) => tokio::time::sleep(config.pause).await,
                Ok(false) => changes.next().await,
                Err(failure) => {
                    tracing::warn!("the person could not be notified: {}", failure.message);
                    tokio::time::sleep(TROUBLE).await;
                }
            }
        }
    };
    shutdown.run_until_cancelled(told).await;
}

/// Tells of what is new; false where nothing is.
async fn tell(config: &NotifyConfig, hub: &Hub) -> Result<bool, Failure> {
    let human = AgentId::human();
    let notes = hub.notes(Door::Workspace, TOPIC).await?;
    let cursor = notes.iter().find(|(key, _)| key == "cursor").and_then(|(_, seq)| seq.parse().ok());
    let Some(after) = cursor else {
        // What lies there from before is old news.
        let last = hub.newest(1).await?.items.last().map_or(0, |stored| stored.seq);
        note(hub, last).await?;
        return Ok(false);
    };
    let query = MailboxQuery { agent: human.clone(), after, limit: MOST, part: Part::Unseen };
    let page = hub.mailbox(query).await?;
    let Some(newest) = page.items.last().map(|mail| mail.stored.seq) else { return Ok(false) };
    // All of it is told of now, if not by name.
    let newest = if page.more { hub.newest_waiting(human.clone()).await?.unwrap_or(newest) } else { newest };
    let unread = hub.count(human, Part::Unseen, 1000).await?;
    note(hub, newest).await?;
    start(&config.how, &page.items, unread).await?;
    Ok(true)
}

async fn note(hub: &Hub, seq: i64) -> Result<(), Failure> {
    Ok(hub.put_note(Door::Workspace, TOPIC, "cursor".to_owned(), Some(seq.to_string())).await?)
}

async fn start(how: &How, mail: &[MailboxMessage], unread: usize) -> Result<(), Failure> {
    let (program, args, input) = match how {
        How::Command(command) => {
            let (program, args) = command.split_first().map_or(("", &[][..]), |(p, args)| (p.as_str(), args));
            (
                program.to_owned(),
                args.to_vec(),
                Some(escape_json_line(&object(mail, unread).to_string()).into_owned() + "\n"),
            )
        }
        How::Desktop => {
            let (program, args) = desktop(&summary(mail), &preview(mail));
            (program.to_owned(), args, None)
        }
    };
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let spawn = Spawn::new(&program).args(args).stdin(stdin);
    let spawn = spawn.env_allow(&["DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"]);
    let mut child = spawn.spawn().map_err(anyhow::Error::from)?;
    let work = async {
        if let (Some(input), Some(mut stdin)) = (input, child.take_stdin()) {
            // A program that does not read its input closes it, which is its right.
            let _ = stdin.write_all(input.as_bytes()).await;
            let _ = stdin.shutdown().await;
        }
        child.wait().await
    };
    match tokio::time::timeout(PATIENCE, work).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => tracing::warn!(program, "the program that notifies ended with {status}"),
        Ok(Err(error)) => return Err(anyhow::Error::from(error).into()),
        Err(_) => tracing::warn!(program, "the program that notifies took too long and was ended"),
    }
    Ok(())
}

/// What a program is told. Scripts rely on these names.
fn object(mail: &[MailboxMessage], unread: usize) -> Value {
    let one = |mail: &MailboxMessage| {
        let message = &mail.stored.message;
        let body: String = message.body.chars().take(PREVIEW).collect();
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
    json!({ "summary": summary(mail), "unread": unread, "messages": mail.iter().map(one).collect::<Vec<_>>() })
}

/// One line.
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

/// The beginning of the first one, on one line.
fn preview(mail: &[MailboxMessage]) -> String {
    let first = mail.first().map(|mail| mail.stored.message.body.as_str()).unwrap_or_default();
    plain(&first.chars().take(PREVIEW).collect::<String>()).replace('\n', " ")
}

/// The program by which a desktop shows a notification, and its arguments.
fn desktop(title: &str, text: &str) -> (&'static str, Vec<String>) {
    if cfg!(target_os = "macos") {
        let script =
            "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run";
        return ("osascript", ["-e", script, title, text].map(str::to_owned).into());
    }
    // Some desktops read marks in the text.
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    ("notify-send", ["--app-name=Switchboard", "--", title, &text].map(str::to_owned).into())
}
