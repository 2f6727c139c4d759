//! Random marks for frames around text of others.

use switchboard_core::FrameNonce;

/// Generates a mark from the system's random numbers.
pub fn fresh_mark() -> FrameNonce {
    // A system without random numbers cannot start the TLS and keys of this program either. The fallback
    // generator is unpredictable enough for those who see only what it renders.
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
