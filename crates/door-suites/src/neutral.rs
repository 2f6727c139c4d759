//! What children say of themselves, made harmless before a model or a terminal sees it.
//!
//! A description reaches the model with the weight of the host's own words. So what a person who reviews
//! it cannot see is taken out, and what imitates the host's markup is made plain text.

mod tags;

use std::collections::BTreeSet;

use serde_json::Value;

/// A text made harmless, and what was found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neutral {
    /// The text.
    pub text: String,
    /// What was found, each once.
    pub flags: Vec<Flag>,
}

/// Something that does not belong into a description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// Characters without width.
    Hidden,
    /// Characters that turn the direction of reading.
    Bidi,
    /// Characters of the tag block, which spell out text that nobody sees.
    TagBlock,
    /// Variation selectors in a row, which can carry any bytes.
    Variations,
    /// Control characters.
    Control,
    /// Escape sequences of terminals.
    Escape,
    /// Markup such as `<IMPORTANT>` that poses as an instruction.
    Markup,
}

impl Flag {
    /// What was found, in words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hidden => "hidden characters",
            Self::Bidi => "characters that turn the reading direction",
            Self::TagBlock => "invisible tag characters",
            Self::Variations => "runs of variation selectors",
            Self::Control => "control characters",
            Self::Escape => "terminal escape sequences",
            Self::Markup => "markup that poses as an instruction",
        }
    }
}

/// Makes a text harmless. A text with nothing in it that is harmful comes back as it was.
pub fn neutral(text: &str) -> Neutral {
    let mut flags = BTreeSet::new();
    let seen = visible(text, &mut flags);
    let text = tags::inert(&seen, &mut flags);
    Neutral { text, flags: flags.into_iter().collect() }
}

/// Makes every text and every name in a value harmless, and says whether anything had to be.
pub(crate) fn neutral_value(value: &mut Value) -> bool {
    match value {
        Value::String(text) => neutral_text(text),
        Value::Array(items) => items.iter_mut().fold(false, |found, item| neutral_value(item) | found),
        Value::Object(members) => {
            let is_odd = |name: &String| !neutral(name).flags.is_empty();
            let has_odd = members.keys().any(is_odd);
            if has_odd {
                let old = std::mem::take(members);
                members.extend(old.into_iter().map(|(name, value)| (neutral(&name).text, value)));
            }
            members.values_mut().fold(has_odd, |found, value| neutral_value(value) | found)
        }
        _ => false,
    }
}

/// Makes a text harmless, and says whether it had to be.
pub(crate) fn neutral_text(text: &mut String) -> bool {
    let harmless = neutral(text);
    let is_found = !harmless.flags.is_empty();
    *text = harmless.text;
    is_found
}

/// Whether a character takes up no room on a screen, or moves what does.
pub(crate) fn is_hidden(c: char) -> bool {
    flag_of(c).is_some() || is_joiner(c)
}

fn flag_of(c: char) -> Option<Flag> {
    Some(match c {
        '\u{00ad}'
        | '\u{034f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180e}'
        | '\u{200b}'
        | '\u{2060}'..='\u{2064}'
        | '\u{206a}'..='\u{206f}'
        | '\u{feff}'
        | '\u{3164}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' => Flag::Hidden,
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Flag::Bidi
        }
        '\u{e0000}'..='\u{e007f}' => Flag::TagBlock,
        '\u{e0100}'..='\u{e01ef}' => Flag::Variations,
        '\u{2028}' | '\u{2029}' => Flag::Control,
        '\n' | '\t' => return None,
        c if c.is_control() => Flag::Control,
        _ => return None,
    })
}

/// Joiners and single variation selectors belong to the writing of many languages and to emoji.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

fn is_variation(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}

/// The text without what cannot be seen.
fn visible(text: &str, flags: &mut BTreeSet<Flag>) -> String {
    if text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut last = None;
    while let Some(c) = chars.next() {
        // The one-character forms of the escape introducers come first: they are control characters too.
        if matches!(c, '\u{1b}' | '\u{9b}' | '\u{9d}' | '\u{90}') {
            flags.insert(Flag::Escape);
            skip_escape(c, &mut chars);
            continue;
        }
        if c == '\r' {
            // A line end of Windows is none of our business; one alone overwrites the line it ends.
            if chars.peek() != Some(&'\n') {
                flags.insert(Flag::Control);
            }
            continue;
        }
        if let Some(flag) = flag_of(c) {
            flags.insert(flag);
            continue;
        }
        let is_wide = |c: Option<char>| c.is_some_and(|c| !c.is_ascii() && !is_joiner(c));
        if is_joiner(c) && !(is_wide(last) && is_wide(chars.peek().copied())) {
            flags.insert(Flag::Hidden);
            continue;
        }
        if is_variation(c) && last.is_none_or(is_variation) {
            flags.insert(Flag::Variations);
            continue;
        }
        out.push(c);
        last = Some(c);
    }
    out
}

/// Skips the rest of an escape sequence: up to its final byte, or up to its terminator.
fn skip_escape(introducer: char, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    /// Longer than any sequence that is meant: what is beyond is text again.
    const LONGEST: usize = 4096;
    let kind = match introducer {
        '\u{9b}' => '[',
        '\u{9d}' | '\u{90}' => ']',
        _ => match chars.next() {
            Some(kind) => kind,
            None => return,
        },
    };
    match kind {
        '[' => {
            while chars.next_if(|c| matches!(c, '\u{20}'..='\u{3f}')).is_some() {}
            chars.next_if(|c| matches!(c, '@'..='~'));
        }
        ']' | 'P' | 'X' | '^' | '_' => {
            for _ in 0..LONGEST {
                match chars.next() {
                    Some('\u{7}' | '\u{9c}') | None => return,
                    Some('\u{1b}') => {
                        chars.next_if_eq(&'\\');
                        return;
                    }
                    Some(_) => {}
                }
            }
        }
        ' '..='/' => {
            chars.next();
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "neutral_tests.rs"]
mod tests;
