//! The identity of a message.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A UUID version 7: a time in milliseconds and 74 random bits. Ids of one [`IdClock`] only ever rise.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MessageId(Uuid);

/// The text is no UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{}' is not a message id", .text.escape_debug())]
pub struct MessageIdError {
    /// The text as given.
    pub text: String,
}

/// How many bits of a version 7 UUID are free.
const RANDOM_BITS: u32 = 74;
const RANDOM_MASK: u128 = (1 << RANDOM_BITS) - 1;
const MILLIS_MASK: u64 = (1 << 48) - 1;

impl MessageId {
    /// The id with this time and these 74 bits; higher bits are dropped.
    pub fn from_parts(millis: u64, random: u128) -> Self {
        let (high, low) = ((random >> 62) & 0xfff, random & ((1 << 62) - 1));
        let bits = (u128::from(millis & MILLIS_MASK) << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low;
        Self(Uuid::from_u128(bits))
    }

    /// The time and the 74 bits: what [`MessageId::from_parts`] was given.
    pub fn parts(self) -> (u64, u128) {
        let bits = self.0.as_u128();
        let millis = u64::try_from(bits >> 80).unwrap_or(MILLIS_MASK);
        (millis, (((bits >> 64) & 0xfff) << 62) | (bits & ((1 << 62) - 1)))
    }

    /// The sixteen bytes, in the order in which ids sort.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// The id with these sixteen bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }
}

/// Makes ids that only ever rise, also when the clock is set back and within one millisecond.
#[derive(Debug, Default)]
pub struct IdClock {
    millis: u64,
    random: u128,
}

impl IdClock {
    /// The next id. `entropy` is a fresh random number.
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
