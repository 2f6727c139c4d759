//! Encodes a text as keystrokes. Pure.
//!
//! Terminals and programs give some characters a meaning: an escape sequence is a key, a newline is Enter, a leading
//! `!` or `/` is a command of an agent's command line. A typed message must have none of these meanings.

/// Most bytes of text per write: the protocol's number. Many programs take a longer burst for a paste.
const CHUNK: usize = 500;

/// Bracketed paste: sent before and after pasted text if the program asked for it.
const PASTE_START: &str = "\x1b[200~";
const PASTE_END: &str = "\x1b[201~";

/// Leading characters that switch an agent's command line to another mode.
const TRIGGERS: [char; 3] = ['!', '/', '$'];

/// Sanitizes a text: removes everything that a terminal or an agent's command line would interpret.
///
/// Escape sequences are removed whole, other control characters one by one; lines end in `\n`. Leading characters that
/// switch modes are removed with the white space around them. The result can be empty.
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

/// True for characters that are not visible. Some programs strip them before they check the first character.
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
        // Intermediate characters come before the final one.
        Some(' '..='/') => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
        _ => {}
    }
}

/// Skips parameters and the final character of a control sequence (ECMA-48, 5.4).
fn skip_control_sequence(rest: &mut Rest<'_>) {
    while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    rest.next_if(|c| matches!(c, '@'..='~'));
}

/// Skips a control string up to its end. Without an end, only the introducer is skipped.
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
/// A program that asked for bracketed paste gets one paste, newlines included. For any other program newlines and tabs
/// become spaces, because they would act as Enter and completion. The paste markers are never split: a program that
/// receives half of one takes it for the Escape key.
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

/// Appends a space if the last word opens a completion list, in which Enter would select an entry.
pub fn dismiss_completion(text: &str) -> String {
    let last = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    let blank = if last.contains(COMPLETED) { " " } else { "" };
    format!("{text}{blank}")
}

/// Characters in a word that agents' command lines complete: files, issues, skills, commands.
const COMPLETED: [char; 4] = ['@', '#', '$', '/'];

/// Returns the end marker, to close a paste that could not be finished.
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
