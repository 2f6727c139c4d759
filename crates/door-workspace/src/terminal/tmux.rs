//! Types into a tmux pane by running tmux commands.
//!
//! The text goes through a buffer that tmux reads from stdin, so it is never an argument that tmux could interpret as a
//! flag or the name of a key. tmux adds bracketed paste markers if the program asked for them.

use std::os::fd::AsFd;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use switchboard_core::MessageId;
use switchboard_sys::platform;
use switchboard_sys::process::Spawn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::screen::{Emulator, InputMode, Screen};
use crate::error::WorkspaceError;

/// Timeout of one tmux call. tmux normally answers within milliseconds.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Format of a pane's state, which is printed before the pane's rows.
const STATE: &str = "#{pane_dead} #{pane_in_mode} #{bracket_paste_flag} #{pane_pid} #{pane_tty} #{pane_height} \
     #{pane_width} #{cursor_y} #{cursor_x}";

/// Maximum number of bytes of tmux output that are read.
///
/// This is enough for the largest screen with all its colours.
const OUTPUT_LIMIT: u64 = 4 << 20;

/// Target name of a tmux pane, in a form that tmux cannot interpret as anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pane(String);

/// The process to which a pane must belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PaneHolder {
    /// Any process is accepted, because the pane was registered with this hub.
    Any,
    /// The pane must belong to the process with this pid.
    Process(u32),
    /// No process is known, so no pane is accepted.
    Unknown,
}

impl Pane {
    /// Parses a pane's target name: `%7` or `session:window.pane`.
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

    /// Returns the target name of the pane.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Captures the pane's screen, or returns the reason why the pane cannot be typed into.
    ///
    /// Fails if the pane does not belong to the process that `holder` requires.
    pub(crate) async fn screen(&self, holder: PaneHolder) -> Result<Screen, String> {
        let Self(pane) = self;
        // Query the state and the rows in one call, so that the cursor matches the rows.
        let args = ["display-message", "-p", "-t", pane, STATE, ";", "capture-pane", "-e", "-p", "-t", pane];
        let shown = tmux(&args, "").await?;
        let (state, rows) = shown.split_once('\n').unwrap_or((&shown, ""));
        let state: Vec<&str> = state.split(' ').collect();
        let [dead, in_mode, paste, pid, terminal, numbers @ ..] = &state[..] else {
            return Err(format!("there is no pane {pane}"));
        };
        let is_held = match holder {
            PaneHolder::Any => true,
            PaneHolder::Process(process) => *pid == process.to_string(),
            PaneHolder::Unknown => false,
        };
        if !is_held && !pid.is_empty() {
            return Err(format!(
                "pane {pane} is not that of the process in state.json, so nothing was typed"
            ));
        }
        if *dead == "1" {
            return Err(format!("the program in pane {pane} has ended"));
        }
        let numbers: Vec<u16> = numbers.iter().filter_map(|number| number.parse().ok()).collect();
        let [height, width, row, column] = numbers[..] else {
            return Err(format!("there is no pane {pane}"));
        };
        let mode = match *in_mode {
            "0" => mode_of(paste, pid, terminal),
            // In copy mode, tmux itself consumes the keys.
            _ => InputMode::Keys,
        };
        Ok(Emulator::redraw(rows, (height, width), (row.into(), column.into()), mode))
    }

    /// Types one line, as a bracketed paste if the program asked for it.
    pub(crate) async fn paste(&self, id: MessageId, line: &str) -> Result<(), String> {
        let Self(pane) = self;
        let buffer = format!("switchboard-{id}");
        tmux(&["load-buffer", "-b", &buffer, "-"], line).await?;
        if let Err(error) = tmux(&["paste-buffer", "-d", "-p", "-b", &buffer, "-t", pane], "").await {
            let _ = tmux(&["delete-buffer", "-b", &buffer], "").await;
            return Err(error);
        }
        Ok(())
    }

    /// Presses one key, given by its code.
    pub(crate) async fn press(&self, key: u8) -> Result<(), String> {
        let Self(pane) = self;
        tmux(&["send-keys", "-t", pane, "-H", &format!("{key:02x}")], "").await.map(drop)
    }
}

/// Determines how a program in a pane accepts input.
///
/// Only newer versions of tmux report whether the program asked for bracketed paste. With an older version, a program
/// that reads key by key is treated as if it had asked: tmux knows, and adds the paste markers only if needed.
fn mode_of(paste: &str, pid: &str, terminal: &str) -> InputMode {
    let opened = platform::open_terminal(Path::new(terminal));
    let edits_lines = opened.is_ok_and(|terminal| platform::edits_lines(terminal.as_fd()));
    match paste {
        "1" => InputMode::Paste,
        "" if !edits_lines => InputMode::Paste,
        _ if edits_lines && pid.parse().is_ok_and(|pid| platform::awaits_line(pid).unwrap_or(true)) => {
            InputMode::Lines
        }
        _ => InputMode::Keys,
    }
}

/// Runs tmux with `input` on its stdin; returns the output or the error.
async fn tmux(args: &[&str], input: &str) -> Result<String, String> {
    let call = async {
        let mut child = Spawn::new("tmux")
            // Force UTF-8 for the screen, whatever the locale of this process.
            .args(["-u"].iter().chain(args).copied())
            // These variables select the tmux server: the one in which this process was started, or the default server
            // of its folder.
            .env_allow(&["TMUX", "TMUX_TMPDIR"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| switchboard_core::error_chain(&error))?;
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        if let Some(mut stdin) = child.stdin_writer() {
            // Ignore a write error: if tmux fails, it closes stdin, and its stderr contains the reason.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        if let (Some(stdout), Some(stderr)) = (child.stdout_reader(), child.stderr_reader()) {
            let (mut stdout, mut stderr) = (stdout.take(OUTPUT_LIMIT), stderr.take(OUTPUT_LIMIT));
            let _ = tokio::join!(stdout.read_to_end(&mut output), stderr.read_to_end(&mut errors));
        }
        let status = child.wait().await.map_err(|error| format!("tmux: {error}"))?;
        if status.success() {
            Ok(String::from_utf8_lossy(&output).into_owned())
        } else {
            Err(format!("tmux {}: {}", args[0], String::from_utf8_lossy(&errors).trim()))
        }
    };
    let timed_out = |_| format!("tmux {} did not answer within {} s", args[0], TIMEOUT.as_secs());
    tokio::time::timeout(TIMEOUT, call).await.map_err(timed_out)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pane_has_two_spellings() {
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
