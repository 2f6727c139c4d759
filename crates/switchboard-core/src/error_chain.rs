//! One-line text of an error and its sources.

use std::error::Error;

/// Joins an error and its sources into one line, outermost first.
///
/// A source is left out if the text before it already contains its message, because many libraries repeat the message of
/// the source in their own.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    struct Link {
        message: &'static str,
        source: Option<Box<Self>>,
    }

    #[test]
    fn sources_are_joined_without_repetition() {
        for (messages, joined) in [
            (&["connection refused"][..], "connection refused"),
            (&["cannot connect", "connection refused"], "cannot connect: connection refused"),
            (&["cannot connect: refused", "refused"], "cannot connect: refused"),
            (&["a", "b", "c"], "a: b: c"),
            // A repeated message does not end the chain.
            (&["read: timeout", "timeout", "host is down"], "read: timeout: host is down"),
            // A source is compared with the whole text before it, not only with the nearest error.
            (&["outer", "inner", "outer"], "outer: inner"),
            (&["outer", ""], "outer"),
        ] {
            let chain = messages.iter().rev().fold(None, |source: Option<Link>, message| {
                Some(Link { message, source: source.map(Box::new) })
            });
            assert_eq!(error_chain(&chain.unwrap()), joined);
        }
    }
}
