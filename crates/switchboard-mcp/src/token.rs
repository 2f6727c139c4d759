//! The secret that opens the HTTP side.

use std::fmt;

use subtle::ConstantTimeEq;
use switchboard_sys::files::Dir;

use crate::error::McpError;

/// The file that programs of the same user read the token from.
const FILE: &str = "auth_token";

/// How many characters a token has. 43 is what 256 bits have in base 64; ours has 64 of base 16.
const MIN_CHARS: usize = 43;
const MAX_CHARS: usize = 256;

/// A bearer token. Whoever has it may do what the user may, so it is never printed.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Draws a new one: 32 random bytes in base 16.
    pub fn generate() -> Result<Self, McpError> {
        random_hex::<32>().map(Self)
    }

    /// Takes a token that was written down, or chosen by someone else.
    ///
    /// Only letters, digits, `-` and `_` are allowed, so that it can stand in a header and in an address as
    /// it is.
    pub fn from_text(text: &str) -> Result<Self, McpError> {
        let text = text.trim();
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_plain && (MIN_CHARS..=MAX_CHARS).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(McpError::BadToken { length: text.chars().count(), least: MIN_CHARS, most: MAX_CHARS })
        }
    }

    /// The token itself, for whoever has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether `guess` is the token. How long that takes says nothing about where the two differ.
    pub(crate) fn matches(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.matches(&other.0)
    }
}

impl Eq for Token {}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Writes the token where the user's programs find it, readable by its owner alone.
pub fn write_token(folder: &Dir, token: &Token) -> Result<(), McpError> {
    // Without a line end: there are clients that send the file's content as it is.
    Ok(folder.replace(FILE, token.0.as_bytes(), 0o600)?)
}

/// Reads the token back; `None` when there is none.
pub fn read_token(folder: &Dir) -> Result<Option<Token>, McpError> {
    let Some(contents) = folder.read(FILE, 4096)? else { return Ok(None) };
    Token::from_text(&String::from_utf8_lossy(&contents.bytes)).map(Some)
}

/// A name that nobody can guess: 128 random bits, in base 16.
pub fn random_id() -> Result<String, McpError> {
    random_hex::<16>()
}

/// `N` random bytes of the system, in base 16.
pub(crate) fn random_hex<const N: usize>() -> Result<String, McpError> {
    use std::fmt::Write;

    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|_| McpError::NoRandomness)?;
    Ok(bytes.iter().fold(String::with_capacity(2 * N), |mut text, byte| {
        // Writing to a `String` cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
