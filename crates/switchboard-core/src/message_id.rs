//! Message ids: monotonic UUIDs version 7.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Id of a message: a UUID version 7.
///
/// It consists of a time in milliseconds and 74 random bits. The ids from one [`IdClock`] increase monotonically.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

/// Error of parsing a message id: the text is not a UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a message id", .text.escape_debug())]
pub struct MessageIdError {
    /// The text as given.
    pub text: String,
}

/// Number of random bits in a version 7 UUID.
const RANDOM_BITS: u32 = 74;
const RANDOM_MASK: u128 = (1 << RANDOM_BITS) - 1;
const MILLIS_MASK: u64 = (1 << 48) - 1;

impl MessageId {
    /// Returns the id with this time and these 74 random bits. Higher bits of both are dropped.
    pub fn from_parts(millis: u64, random: u128) -> Self {
        let (high, low) = ((random >> 62) & 0xfff, random & ((1 << 62) - 1));
        let bits = (u128::from(millis & MILLIS_MASK) << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low;
        Self(Uuid::from_u128(bits))
    }

    /// Returns the time and the 74 random bits, the arguments of [`MessageId::from_parts`].
    pub fn parts(self) -> (u64, u128) {
        let bits = self.0.as_u128();
        let millis = u64::try_from(bits >> 80).unwrap_or(MILLIS_MASK);
        (millis, (((bits >> 64) & 0xfff) << 62) | (bits & ((1 << 62) - 1)))
    }

    /// Returns the sixteen bytes of the id, which sort in the same order as ids.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// Returns the id with these sixteen bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

/// Generator of monotonically increasing message ids.
///
/// Ids increase even within one millisecond and when the system clock is set back.
#[derive(Debug, Default)]
pub struct IdClock {
    millis: u64,
    random: u128,
}

impl IdClock {
    /// Returns the next id. `entropy` is a fresh random number.
    pub fn next(&mut self, now: Timestamp, entropy: u128) -> MessageId {
        let now = u64::try_from(now.as_millisecond()).unwrap_or(0) & MILLIS_MASK;
        if now > self.millis {
            self.millis = now;
            // The top bit stays free, so that counting up within this millisecond cannot overflow.
            self.random = entropy & (RANDOM_MASK >> 1);
        } else {
            self.random += 1 + (entropy & 0xffff_ffff);
            if self.random > RANDOM_MASK {
                self.millis += 1;
                self.random = entropy & (RANDOM_MASK >> 1);
            }
        }
        MessageId::from_parts(self.millis, self.random)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MessageId {
    type Err = MessageIdError;

    fn from_str(text: &str) -> Result<Self, MessageIdError> {
        Uuid::try_parse(text).map(Self).map_err(|_| MessageIdError { text: text.to_owned() })
    }
}

#[cfg(test)]
#[path = "message_id_tests.rs"]
mod tests;
