//! The one way to stdout.

use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde_json::json;
use switchboard_core::{escape_json_line, quote_continuation, reveal};
use switchboard_sys::disk::DiskTrouble;

use crate::failure::{Exit, Failure};

/// Prints data as text or as one JSON object per line.
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

    /// One line of data as text. A reader that went away (`| head`) ends the program quietly.
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

    /// One JSON object on a line of its own.
    pub(crate) fn object(self, value: &impl Serialize) {
        self.json_line(&serde_json::to_string(value).unwrap_or_default());
    }

    /// A JSON text that others wrote, on a line of its own for every reader.
    pub(crate) fn json_line(self, json: &str) {
        self.line(escape_json_line(json));
    }

    /// Something to know that is not data; kept from scripts that asked for JSON.
    pub(crate) fn note(self, text: impl Display) {
        if !self.json {
            let _ = writeln!(anstream::stderr().lock(), "{text}");
        }
    }

    /// Says that the workspace can be read and not written; to scripts as well, beside their JSON.
    #[expect(clippy::unused_self, reason = "a printer is the permission to print")]
    pub(crate) fn degraded(self, trouble: &DiskTrouble) {
        let _ = writeln!(
            anstream::stderr().lock(),
            "warning: the workspace is degraded: {trouble}; what is there can be read, and nothing can be sent"
        );
    }

    /// Says what went wrong and what to do next.
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

    /// A sentence of ours in which a text of others may stand: nothing in it acts on a terminal, and no line but the
    /// first can be taken for ours.
    fn shown(text: &str) -> String {
        quote_continuation(&reveal(text))
    }

    /// Shows that something takes time, where a person is watching.
    pub(crate) fn working(self, what: &'static str) -> Option<indicatif::ProgressBar> {
        if self.json || !std::io::stderr().is_terminal() {
            return None;
        }
        let bar = indicatif::ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(std::time::Duration::from_millis(120));
        Some(bar)
    }
}
