//! Message ids of the workspace protocol: `msg_<milliseconds>_<random>`.
//!
//! A message that Switchboard created has the same id in two spellings: a [`MessageId`] and a protocol id. The
//! conversion needs no table. Therefore a redelivery finds the file that it wrote before, and a lost database can be
//! rebuilt from the files with the same ids.

use sha2::{Digest, Sha256};
use switchboard_core::{Door, Message, MessageId, NativeId};
use switchboard_hub::ExpectedFile;

/// Number of digits that encode 74 random bits in base 36.
///
/// The fixed width makes file names sort in the order of their ids.
const DIGITS: usize = 15;

/// Returns the protocol id of a message id.
pub fn to_native(id: MessageId) -> String {
    let (millis, mut random) = id.parts();
    let mut digits = [b'0'; DIGITS];
    for digit in digits.iter_mut().rev() {
        let value = u8::try_from(random % 36).unwrap_or(0);
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
        random /= 36;
    }
    format!("msg_{millis}_{}", String::from_utf8_lossy(&digits))
}

/// Parses an id made by [`to_native`]; returns `None` for ids of other programs.
pub fn from_native(native: &str) -> Option<MessageId> {
    let (millis, digits) = native.strip_prefix("msg_")?.split_once('_')?;
    let random = u128::from_str_radix(digits, 36).ok()?;
    let id = MessageId::from_parts(millis.parse().ok()?, random);
    (to_native(id) == native).then_some(id)
}

/// Derives the id of a message that another program named.
///
/// The same file always gets the same id, even after the database was lost.
pub(crate) fn derived(native: &str, mailbox: &str, millis: i64) -> MessageId {
    let mut hash = Sha256::new();
    hash.update(native);
    hash.update([0]);
    hash.update(mailbox.to_ascii_lowercase());
    let bytes: [u8; 32] = hash.finalize().into();
    let random = bytes[..16].iter().fold(0_u128, |random, byte| (random << 8) | u128::from(*byte));
    MessageId::from_parts(u64::try_from(millis).unwrap_or(0), random)
}

/// Returns the protocol id of a message from any door.
pub fn native_id(message: &Message) -> String {
    native(message.id, &message.origin.native)
}

/// Returns the name of a waiting message's mailbox file.
pub(crate) fn file_of(waiting: &ExpectedFile) -> String {
    file_name(&native_id_of_waiting(waiting))
}

/// Returns the protocol id of a waiting message.
pub(crate) fn native_id_of_waiting(waiting: &ExpectedFile) -> String {
    native(waiting.id, &waiting.native)
}

/// Returns the file name of a message, given its protocol id.
pub fn file_name(native: &str) -> String {
    format!("{native}.json")
}

/// Returns the protocol id in a message file's name; `None` for other file names.
pub(crate) fn of_file(name: &str) -> Option<&str> {
    let native = name.strip_suffix(".json")?;
    (is_safe(native) && native.starts_with("msg_")).then_some(native)
}

/// Returns true if an untrusted id can safely be part of a file name.
pub(crate) fn is_safe(native: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    (1..=200).contains(&native.len()) && native.bytes().all(legal) && !native.contains("..")
}

fn native(id: MessageId, origin: &NativeId) -> String {
    if origin.door == Door::Workspace && origin.id.starts_with("msg_") {
        origin.id.clone()
    } else {
        to_native(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn ids_round_trip_and_file_names_sort_like_ids(
            a in (1_000_000_000_000..9_999_999_999_999_u64, 0..1_u128 << 74),
            b in (1_000_000_000_000..9_999_999_999_999_u64, 0..1_u128 << 74),
        ) {
            let (x, y) = (MessageId::from_parts(a.0, a.1), MessageId::from_parts(b.0, b.1));
            proptest::prop_assert_eq!(from_native(&to_native(x)), Some(x));
            proptest::prop_assert_eq!(to_native(x).cmp(&to_native(y)), x.cmp(&y));
        }

        #[test]
        fn garbage_is_no_native_id(text in ".{0,40}") {
            if let Some(id) = from_native(&text) {
                proptest::prop_assert_eq!(to_native(id), text);
            }
        }
    }

    #[test]
    fn foreign_ids_get_a_stable_id_per_mailbox() {
        let id = |native, mailbox| derived(native, mailbox, 1_763_000_000_000);
        assert_eq!(id("msg_1_abc", "codex"), id("msg_1_abc", "Codex"));
        assert_ne!(id("msg_1_abc", "codex"), id("msg_1_abc", "claude"));
        assert_ne!(id("msg_1_abc", "codex"), id("msg_1_abd", "codex"));
    }

    #[test]
    fn only_message_files_count() {
        for name in ["msg_1_a.json", "msg_1763000000000_0000000000000ab.json"] {
            assert!(of_file(name).is_some(), "{name}");
        }
        for name in
            [".tmp-1-2-3", "msg_1.json.conflict.1", "note.json", "msg_../x.json", "msg_a b.json", "msg_1.txt"]
        {
            assert_eq!(of_file(name), None, "{name}");
        }
    }
}
