//! Encodes text as keystrokes. Pure.
//!
//! Terminals and programs give some characters a special meaning: an escape sequence is a key, a newline is Enter, and
//! a leading `!` or `/` is a command of an agent's command line. A typed message must not trigger any of these.

/// Maximum number of bytes of text per write, as defined by the protocol.
///
/// Many programs treat a longer burst as a paste.
const CHUNK: usize = 500;

/// Start marker of a bracketed paste, for programs that asked for bracketed paste.
const PASTE_START: &str = "\x1b[200~";
const PASTE_END: &str = "\x1b[201~";

/// Leading characters that switch an agent's command line to another mode.
const TRIGGERS: [char; 3] = ['!', '/', '$'];

/// Sanitizes a text: removes everything that a terminal or an agent's command line would interpret.
///
/// Escape sequences are removed as a whole, and other control characters one by one. Lines end in `\n`. Leading
/// characters that switch modes are removed together with the white space around them. The result can be empty.
pub fn sanitize_input(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => skip_escape(&mut rest),
            '\u{9b}' => skip_control_sequence(&mut rest),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(&mut rest),
            '\r' => {
                rest.next_if_eq(&'\n');
                plain.push('\n');
            }
            '\n' | '\t' => plain.push(character),
            _ if character.is_control() => {}
            _ => plain.push(character),
        }
    }
    let begin = plain.trim_start_matches(|c: char| is_blank(c) || TRIGGERS.contains(&c));
    begin.trim_end().to_owned()
}

/// Returns true for invisible characters: white space and zero-width characters.
///
/// Some programs strip them before they check the first character.
fn is_blank(c: char) -> bool {
    let is_unseen = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_whitespace() || is_unseen
}

type Rest<'t> = std::iter::Peekable<std::str::Chars<'t>>;

/// Skips the rest of an escape sequence: a control sequence, a control string, or one character.
fn skip_escape(rest: &mut Rest<'_>) {
    match rest.next_if(|c| !c.is_control()) {
        Some('[') => skip_control_sequence(rest),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(rest),
        // Intermediate characters come before the final character.
        Some(' '..='/') => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
        _ => {}
    }
}

/// Skips the parameters and the final character of a control sequence (ECMA-48, 5.4).
fn skip_control_sequence(rest: &mut Rest<'_>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

/// Skips a control string up to its terminator. Without a terminator, only the introducer is skipped.
fn skip_string(rest: &mut Rest<'_>) {
    let mut ahead = rest.clone();
    while let Some(character) = ahead.next() {
        match character {
            '\u{7}' | '\u{9c}' => {
                *rest = ahead;
                return;
            }
            '\u{1b}' if ahead.next_if_eq(&'\\').is_some() => {
                *rest = ahead;
                return;
            }
            _ => {}
        }
    }
}

/// Encodes a sanitized text as the writes that type it, without the final Enter.
///
/// A program that asked for bracketed paste gets one paste, including newlines. For any other program, newlines and
/// tabs become spaces, because they would act as Enter and completion. The paste markers are never split, because a
/// program that receives half of a marker mistakes it for the Escape key.
pub fn encode_keystrokes(text: &str, paste: bool) -> Vec<Vec<u8>> {
    let one_line;
    let text = if paste {
        text
    } else {
        one_line = text.replace(['\n', '\t'], " ");
        &one_line
    };
    let mut writes: Vec<Vec<u8>> = chunks(text).into_iter().map(|chunk| chunk.as_bytes().to_vec()).collect();
    if paste && let [first, ..] = &mut writes[..] {
        first.splice(0..0, PASTE_START.bytes());
        if let Some(last) = writes.last_mut() {
            last.extend(PASTE_END.bytes());
        }
    }
    writes
}

/// Dismisses a completion list by appending a space if the last word opens one.
///
/// While such a list is open, Enter would select an entry.
pub fn dismiss_completion(text: &str) -> String {
    let last = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    let blank = if last.contains(COMPLETED) { " " } else { "" };
    format!("{text}{blank}")
}

/// Characters that open a completion list in agents' command lines: files, issues, skills, commands.
const COMPLETED: [char; 4] = ['@', '#', '$', '/'];

/// Returns the end marker that closes an unfinished bracketed paste.
pub fn paste_end() -> &'static [u8] {
    PASTE_END.as_bytes()
}

/// Splits a text into chunks of at most [`CHUNK`] bytes at character boundaries.
fn chunks(mut text: &str) -> Vec<&str> {
    let mut chunks = Vec::new();
    while !text.is_empty() {
        let (chunk, rest) = text.split_at(text.floor_char_boundary(CHUNK));
        chunks.push(chunk);
        text = rest;
    }
    chunks
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
