//! A text as keystrokes. Pure.
//!
//! What is typed into a terminal is read by a program that gives some characters a meaning of their own:
//! an escape sequence is a key, a newline is Enter, a leading `!` or `/` is a command of an agent's
//! command line. A message is none of these, whatever it holds.

/// Most bytes of text in one write: the protocol's number. Many programs take a longer burst for a paste.
const CHUNK: usize = 500;

/// What a terminal sends before and after pasted text when a program asked for it.
const PASTE_START: &str = "\x1b[200~";
const PASTE_END: &str = "\x1b[201~";

/// Characters that switch an agent's command line to another mode when they come first.
const TRIGGERS: [char; 3] = ['!', '/', '$'];

/// The text without anything that a terminal or an agent's command line would take for more than text.
///
/// Escape sequences go as a whole, other control characters one by one; lines end in `\n`. Characters that
/// switch modes at the beginning go, with the white space around them. What is left can be empty.
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

/// Whether nothing is seen of a character. Some programs cut such characters off before they look at what comes first.
fn is_blank(c: char) -> bool {
    let is_unseen = matches!(
        c,
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{e0000}'..='\u{e007f}'
    );
    c.is_whitespace() || is_unseen
}

type Rest<'t> = std::iter::Peekable<std::str::Chars<'t>>;

/// Skips what follows an ESC: a control sequence, a control string, or one character.
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

/// Skips a control string up to its end; one without an end takes nothing but its introducer.
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

/// A neutral text as the writes that type it, without the Enter at the end.
///
/// Into a program that asked for bracketed paste it goes as one paste, lines and all. Into any other one
/// newlines and tabs go as spaces, as they would be Enter and completion. The marks of a paste are never
/// split: a program that gets half of one takes it for the Escape key.
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

/// The text with a blank at its end where its last word opens a list of completions, in which Enter would choose.
pub fn dismiss_completion(text: &str) -> String {
    let last = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    let blank = if last.contains(COMPLETED) { " " } else { "" };
    format!("{text}{blank}")
}

/// Characters in a word that agents' command lines complete: files, issues, skills, commands.
const COMPLETED: [char; 4] = ['@', '#', '$', '/'];

/// What ends a paste that was begun and could not be finished.
pub fn paste_end() -> &'static [u8] {
    PASTE_END.as_bytes()
}

/// Pieces of at most [`CHUNK`] bytes that end between characters.
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
