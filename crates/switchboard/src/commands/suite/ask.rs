//! Asking the person, where there is one.

use std::io::{BufRead, IsTerminal, Write};

/// Whether someone is there to be asked.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks; anything but a clear yes is a no.
pub(crate) fn yes(question: &str) -> bool {
    let mut err = anstream::stderr().lock();
    if write!(err, "{question} [y/N] ").and_then(|()| err.flush()).is_err() {
        return false;
    }
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}
