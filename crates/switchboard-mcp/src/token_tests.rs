use std::os::unix::fs::PermissionsExt;

use super::*;

#[test]
fn token_has_256_random_bits() {
    let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
    assert_eq!(one.reveal().len(), 64);
    assert!(one.reveal().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_ne!(one, other);
}

#[test]
fn only_the_complete_token_matches() {
    let token = Token::generate().unwrap();
    let text = token.reveal();
    let other_end = if text.ends_with('0') { "1" } else { "0" };
    assert!(token.matches(text));
    for guess in ["", &text[..63], &format!("{text}0"), &format!("{}{other_end}", &text[..63])] {
        assert!(!token.matches(guess), "{guess}");
    }
}

#[test]
fn token_is_redacted_in_debug() {
    let token = Token::generate().unwrap();
    assert_eq!(format!("{token:?}"), "Token(…)");
}

#[test]
fn short_or_unsafe_token_is_rejected() {
    for text in ["", "secret", &"a".repeat(42), &"a".repeat(257), &format!("{}+/", "a".repeat(50))] {
        assert!(matches!(Token::from_text(text), Err(McpError::BadToken { .. })), "{text}");
    }
    let padded = format!("  {}\n", "Ab-_9".repeat(10));
    assert_eq!(Token::from_text(&padded).unwrap().reveal(), "Ab-_9".repeat(10));
}

#[test]
fn token_file_is_private_and_exact() {
    let home = tempfile::tempdir().unwrap();
    let folder = Dir::open_root(home.path()).unwrap();
    assert_eq!(read_token(&folder).unwrap(), None);

    let token = Token::generate().unwrap();
    write_token(&folder, &token).unwrap();
    let path = home.path().join("auth_token");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), token.reveal());
    assert_eq!(read_token(&folder).unwrap(), Some(token));
}
