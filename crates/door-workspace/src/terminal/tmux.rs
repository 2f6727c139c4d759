//! Typing into a tmux pane, through tmux itself.
//!
//! The text goes through a buffer that is read from stdin, so it is never an argument that tmux could take
//! for a flag or the name of a key. tmux puts the marks of a paste around it where the program asked.

use std::process::Stdio;
use std::time::Duration;

use switchboard_core::MessageId;
use switchboard_hub::process::Spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::error::WorkspaceError;

/// How long one call of tmux may take; it answers in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long after the text the Enter comes: programs that look for pastes by their speed need a pause.
const BEFORE_ENTER: Duration = Duration::from_millis(150);

/// Most of what tmux says that is read.
const ANSWER: u64 = 4096;

/// A tmux pane, spelled so that tmux can take it for nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pane(String);

impl Pane {
    /// `%7`, or `session:window.pane`.
    pub(crate) fn parse(text: &str) -> Result<Self, WorkspaceError> {
        let is_number =
            |text: &str| (1..=9).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
        let is_plain = |text: &str| {
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
            (1..=100).contains(&text.len()) && text.bytes().all(legal) && !text.starts_with('-')
        };
        let is_named = || {
            let (session, rest) = text.split_once(':')?;
            let (window, pane) = rest.rsplit_once('.')?;
            Some(is_plain(session) && is_plain(window) && is_number(pane))
        };
        if text.strip_prefix('%').is_some_and(is_number) || is_named() == Some(true) {
            return Ok(Self(text.to_owned()));
        }
        Err(WorkspaceError::Field {
            field: "pane",
            problem: format!(
                "is '{}'; give a pane as %7 or session:window.0, with letters, digits, '_' and '-'",
                text.escape_debug()
            ),
        })
    }

    /// Its name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Types one line and Enter; says why where that failed, and whether something was typed.
    ///
    /// With `holds`, only where that process is the pane's own.
    pub(crate) async fn type_line(
        &self,
        id: MessageId,
        line: &str,
        holds: Option<Option<u32>>,
    ) -> Result<(), String> {
        let Self(pane) = self;
        let asked = "#{pane_dead}#{pane_in_mode} #{pane_pid}";
        let state = tmux(&["display-message", "-p", "-t", pane, asked], "").await?;
        let (state, process) = state.trim().split_once(' ').unwrap_or((state.trim(), ""));
        if let Some(holds) = holds
            && !process.is_empty()
            && holds.map(|pid| pid.to_string()).as_deref() != Some(process)
        {
            return Err(format!(
                "pane {pane} is not that of the process in state.json, so nothing was typed"
            ));
        }
        match state {
            "00" => {}
            "01" => return Err(format!("pane {pane} is in copy mode, so nothing was typed")),
            "" => return Err(format!("there is no pane {pane}")),
            _ => return Err(format!("the program in pane {pane} has ended")),
        }
        let buffer = format!("switchboard-{id}");
        tmux(&["load-buffer", "-b", &buffer, "-"], line).await?;
        if let Err(error) = tmux(&["paste-buffer", "-d", "-p", "-b", &buffer, "-t", pane], "").await {
            let _ = tmux(&["delete-buffer", "-b", &buffer], "").await;
            return Err(error);
        }
        tokio::time::sleep(BEFORE_ENTER).await;
        tmux(&["send-keys", "-t", pane, "Enter"], "")
            .await
            .map(drop)
            .map_err(|error| format!("the text was typed, but no Enter: {error}"))
    }
}

/// Runs tmux with `input` on its stdin; what it says, or why it failed.
async fn tmux(args: &[&str], input: &str) -> Result<String, String> {
    let call = async {
        let mut child = Spawn::new("tmux")
            .args(args.iter().copied())
            // Which server: the one that we were started in, or the default one of its folder.
            .env_allow(&["TMUX", "TMUX_TMPDIR"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| crate::delivery::describe(&error))?;
        let (mut said, mut complaint) = (Vec::new(), Vec::new());
        if let Some(mut stdin) = child.take_stdin() {
            // A tmux that fails closes its stdin; what it says on stderr tells more.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        if let (Some(stdout), Some(stderr)) = (child.take_stdout(), child.take_stderr()) {
            let (mut stdout, mut stderr) = (stdout.take(ANSWER), stderr.take(ANSWER));
            let _ = tokio::join!(stdout.read_to_end(&mut said), stderr.read_to_end(&mut complaint));
        }
        let status = child.wait().await.map_err(|error| format!("tmux: {error}"))?;
        if status.success() {
            Ok(String::from_utf8_lossy(&said).into_owned())
        } else {
            Err(format!("tmux {}: {}", args[0], String::from_utf8_lossy(&complaint).trim()))
        }
    };
    let late = |_| format!("tmux {} did not answer within {} s", args[0], PATIENCE.as_secs());
    tokio::time::timeout(PATIENCE, call).await.map_err(late)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pane_is_spelled_in_one_of_two_ways() {
        for text in ["%0", "%123456789", "main:0.1", "my_work-2:edit.10"] {
            assert!(Pane::parse(text).is_ok(), "{text}");
        }
        for text in [
            "",
            "%",
            "%x",
            "%1 ",
            "%1;kill-server",
            "-t",
            "main",
            "main:0",
            "main:0.x",
            ":0.1",
            "-a:0.1",
            "a b:0.1",
            "=main:0.1",
            "{last}",
            "%1\n",
            "main:-1.1",
            "a:b:c.1",
            "%1234567890",
            "main:0.%1",
            "$1:@1.1",
        ] {
            let error = Pane::parse(text).unwrap_err().to_string();
            assert!(error.starts_with("the field 'pane' is"), "{text}: {error}");
        }
    }
}
