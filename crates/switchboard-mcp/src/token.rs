//! Bearer token of the HTTP server.

use std::fmt;

use subtle::ConstantTimeEq;
use switchboard_sys::files::Dir;

use crate::error::McpError;

/// File from which programs of the same user read the token.
const FILE: &str = "auth_token";

/// Minimum length of a token; [`MAX_CHARS`] is the maximum. 43 characters are 256 bits in base64, and generated tokens
/// have 64 hexadecimal digits.
const MIN_CHARS: usize = 43;
const MAX_CHARS: usize = 256;

/// Bearer token. It grants all rights of the user, so it is redacted in debug output.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// Generates a token: 32 random bytes in hexadecimal.
    pub fn generate() -> Result<Self, McpError> {
        random_hex::<32>().map(Self)
    }

    /// Parses a token that was stored, or chosen by another program.
    ///
    /// Only letters, digits, `-` and `_` are allowed, so that a token needs no escaping in a header or a URL.
    pub fn from_text(text: &str) -> Result<Self, McpError> {
        let text = text.trim();
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_plain && (MIN_CHARS..=MAX_CHARS).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(McpError::BadToken { length: text.chars().count(), least: MIN_CHARS, most: MAX_CHARS })
        }
    }

    /// Returns the token, for a client that sends it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares the token with a guess in constant time.
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

/// Writes the token file, readable by its owner only.
pub fn write_token(folder: &Dir, token: &Token) -> Result<(), McpError> {
    // The file has no line break at its end, because some clients send its content unchanged.
    Ok(folder.replace(FILE, token.0.as_bytes(), 0o600)?)
}

/// Reads the token file; `None` if it does not exist.
pub fn read_token(folder: &Dir) -> Result<Option<Token>, McpError> {
    let Some(contents) = folder.read(FILE, 4096)? else { return Ok(None) };
    Token::from_text(&String::from_utf8_lossy(&contents.bytes)).map(Some)
}

/// Returns an unguessable id: 128 random bits in hexadecimal.
pub fn random_id() -> Result<String, McpError> {
    random_hex::<16>()
}

/// Returns `N` random bytes from the system in hexadecimal.
pub(crate) fn random_hex<const N: usize>() -> Result<String, McpError> {
    use std::fmt::Write;

    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|_| McpError::NoRandomness)?;
    Ok(bytes.iter().fold(String::with_capacity(2 * N), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
