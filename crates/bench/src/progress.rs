//! What is told on the way, on stderr: stdout belongs to the figures.

/// Writes a line to stderr.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // A closed stderr is no reason to stop measuring.
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub(crate) use say;
