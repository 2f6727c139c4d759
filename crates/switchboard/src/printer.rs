//! Printer: the only writer of stdout.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use switchboard_core::{escape_json_line, quote_continuation, reveal};
use switchboard_sys::disk::DiskFault;

use crate::failure::{Exit, Failure};

/// Printer of data, as text or as one JSON object per line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    json: bool,
}

impl Printer {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Prints one line of text. If the reader closed the pipe (`| head`), the process exits quietly.
    #[expect(clippy::unused_self, reason = "a printer is the permission to print")]
    pub(crate) fn line(self, text: impl Display) {
        let mut out = anstream::stdout().lock();
        let Err(error) = writeln!(out, "{text}").and_then(|()| out.flush()) else { return };
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            std::process::exit(0);
        }
        let _ = writeln!(anstream::stderr().lock(), "error: stdout cannot be written to: {error}");
        std::process::exit(Exit::Failed as i32);
    }

    /// Prints a value as a JSON object on one line.
    pub(crate) fn object(self, value: &impl Serialize) {
        self.json_line(&serde_json::to_string(value).unwrap_or_default());
    }

    /// Prints JSON text from elsewhere on one line. Characters that act on a terminal or that some readers treat as
    /// line breaks are escaped.
    pub(crate) fn json_line(self, json: &str) {
        self.line(escape_json_line(json));
    }

    /// Prints a remark, which is not data, to stderr. With `--json` it is omitted.
    pub(crate) fn note(self, text: impl Display) {
        if !self.json {
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// Warns on stderr that the workspace is read-only, even with `--json`.
    #[expect(clippy::unused_self, reason = "a printer is the permission to print")]
    pub(crate) fn degraded(self, trouble: &DiskFault) {
        let _ = writeln!(
            anstream::stderr().lock(),
            "warning: the workspace is degraded: {trouble}; what is there can be read, and nothing can be sent"
        );
    }

    /// Prints the problem and the next step; returns the exit code.
    pub(crate) fn failure(self, failure: &Failure) -> ExitCode {
        if self.json {
            let error = json!({ "code": failure.code, "message": failure.message, "hint": failure.hint });
            self.object(&json!({ "error": error }));
        } else {
            let red = anstyle::AnsiColor::Red.on_default().bold();
            let mut err = anstream::stderr().lock();
            let _ = writeln!(err, "{red}error:{red:#} {}", Self::shown(&failure.message));
            if let Some(hint) = &failure.hint {
                let _ = writeln!(err, "hint: {}", Self::shown(hint));
            }
        }
        ExitCode::from(failure.exit as u8)
    }

    /// Escapes a message that may contain untrusted text. No character acts on the terminal, and lines after the first
    /// cannot look like ours.
    fn shown(text: &str) -> String {
        quote_continuation(&reveal(text))
    }

    /// Shows a spinner for slow work; returns `None` with `--json`, or if stderr is not a terminal.
    pub(crate) fn working(self, what: &'static str) -> Option<indicatif::ProgressBar> {
        if self.json || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(std::time::Duration::from_millis(120));
        Some(bar)
    }
}
