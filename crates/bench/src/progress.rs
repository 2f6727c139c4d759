//! Progress on stderr; stdout has only the figures.

/// Writes a line to stderr.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // A closed stderr must not stop the measurement.
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

pub(crate) use say;
