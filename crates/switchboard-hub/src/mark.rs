//! Random marks (nonces) for frames around text of others.

use switchboard_core::FrameNonce;

/// Generates a mark from the operating system's random number generator.
pub fn fresh_mark() -> FrameNonce {
    // Without system random numbers, this program cannot create TLS sessions or keys either. The fallback generator is
    // unpredictable enough for those who see only its rendered output.
    FrameNonce::from_random(getrandom::u64().unwrap_or_else(|_| fastrand::u64(..)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_marks_differ() {
        assert_ne!(fresh_mark(), fresh_mark());
    }
}
