//! Sanitizer for untrusted text, with a single list of hidden characters for all doors.
//!
//! Models and terminals act on characters that a person who reviews the text does not see, such as zero-width ones.
//! Models also act on markup that imitates a host (prompt injection).
//!
//! - [`clean`] removes the hidden characters.
//! - [`sanitize`] also disarms the markup.
//! - [`sanitize_description`] is for the tool descriptions of a child (MCP server), where placeholders such as `<path>`
//!   are common. It disarms only markup that has a meaning for hosts.
//! - [`reveal`] makes the characters visible that [`clean`] removes.
//! - [`reveal_command`] also makes look-alikes visible.

mod inline;
mod lookalike;
mod markup;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

pub use self::inline::{label_inline, quote_inline, sanitize_inline};

/// A sanitized description, with a flag for each kind of suspicious content found in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sanitized {
    /// The sanitized text.
    pub text: String,
    /// Flags of the suspicious content, each once.
    pub flags: Vec<Flag>,
}

/// Kind of suspicious content that the sanitizer found in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Flag {
    /// Invisible characters, such as zero-width ones.
    Hidden,
    /// Bidirectional controls, which change the reading direction.
    Bidi,
    /// Characters of the Unicode tag block, which encode invisible text.
    TagBlock,
    /// Variation selectors outside emoji, which can encode arbitrary bytes.
    Variations,
    /// Control characters.
    Control,
    /// Escape sequences of terminals.
    Escape,
    /// Markup such as `<IMPORTANT>` that poses as an instruction.
    Markup,
}

impl Flag {
    /// Returns a description of the flag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hidden => "hidden characters",
            Self::Bidi => "characters that reverse the reading direction",
            Self::TagBlock => "invisible tag characters",
            Self::Variations => "runs of variation selectors",
            Self::Control => "control characters",
            Self::Escape => "terminal escape sequences",
            Self::Markup => "markup that imitates an instruction",
        }
    }
}

/// Sanitizes a text of another owner or of an unverified sender.
///
/// The result has no hidden (zero-width) characters and no line break other than `\n`. It also has no character that a
/// model could read as the start of a tag: `Vec<T>` becomes `Vec&lt;T>`.
pub fn sanitize(text: &str) -> Cow<'_, str> {
    markup::disarm_all(clean(text))
}

/// Sanitizes a tool description of a child (MCP server). A harmless text is returned unchanged.
pub fn sanitize_description(text: &str) -> Sanitized {
    let mut flags = BTreeSet::new();
    let clean = clean_noting(text, &mut flags);
    let text = markup::disarm_named(&clean, &mut flags);
    Sanitized { text, flags: flags.into_iter().collect() }
}

/// Removes hidden (zero-width) characters, control characters and escape sequences. Every line break becomes `\n`.
pub fn clean(text: &str) -> Cow<'_, str> {
    clean_noting(text, &mut BTreeSet::new())
}

/// Escapes hidden and control characters for a person's terminal. Line feeds and tabs are unchanged.
pub fn reveal(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '\n' && (is_line_break(c) || flag_of(c).is_some()) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Escapes everything that a person could misread in a command.
///
/// These are the characters of [`reveal`], joiners, unusual spaces, and look-alikes (homoglyphs) of ASCII characters. A
/// word that is entirely in another script is unchanged.
pub fn reveal_command(text: &str) -> String {
    // Some hidden characters, such as the Hangul fillers, are letters according to Unicode.
    let is_part = |c: char| (c.is_alphanumeric() || !c.is_ascii()) && !is_odd_space(c) && !is_hidden(c);
    let mut shown = String::with_capacity(text.len());
    let mut word = String::new();
    for c in text.chars() {
        if is_part(c) && !is_emoji_selector(c) && !is_line_break(c) {
            word.push(c);
            continue;
        }
        lookalike::push_revealed(&std::mem::take(&mut word), &mut shown);
        let is_plain = matches!(c, '\n' | '\t' | ' '..='~');
        if is_plain { shown.push(c) } else { shown.extend(c.escape_default()) }
    }
    lookalike::push_revealed(&word, &mut shown);
    shown
}

/// Removes hidden characters from every string and every key of a JSON value, like [`clean`].
pub fn clean_value(value: &mut Value) {
    change_texts(value, &mut |text| {
        if let Cow::Owned(cleaned) = clean(text) {
            *text = cleaned;
        }
    });
}

/// Sanitizes every string and every key of a JSON value.
pub fn sanitize_value(value: &mut Value) {
    change_texts(value, &mut |text| {
        if let Cow::Owned(sanitized) = sanitize(text) {
            *text = sanitized;
        }
    });
}

/// Sanitizes every string and every key of a child's tool schema. Returns true if anything suspicious was found.
pub fn sanitize_description_value(value: &mut Value) -> bool {
    let mut is_found = false;
    change_texts(value, &mut |text| {
        let Sanitized { text: sanitized, flags } = sanitize_description(text);
        is_found |= !flags.is_empty();
        *text = sanitized;
    });
    is_found
}

/// Returns true for a character that is invisible (zero-width) or changes the order of visible characters.
pub fn is_hidden(c: char) -> bool {
    flag_of(c).is_some() || is_joiner(c)
}

/// Returns true for every character that some program treats as a line break.
pub(crate) fn is_line_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

fn change_texts(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| change_texts(item, change)),
        Value::Object(fields) => {
            let changed = std::mem::take(fields).into_iter().map(|(mut name, mut value)| {
                change(&mut name);
                change_texts(&mut value, change);
                (name, value)
            });
            *fields = changed.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the flag of a character that is removed regardless of its neighbours.
///
/// Removed are all characters of general category Cf, default-ignorable code points, controls and noncharacters. The
/// exceptions are joiners and the two variation selectors of emoji, which depend on their neighbours; see
/// [`clean_pairs`].
fn flag_of(c: char) -> Option<Flag> {
    Some(match c {
        '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
            Flag::Bidi
        }
        '\u{e0000}'..='\u{e007f}' => Flag::TagBlock,
        '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0d}' | '\u{e0100}'..='\u{e01ef}' => {
            Flag::Variations
        }
        '\u{00ad}'
        | '\u{034f}'
        | '\u{0600}'..='\u{0605}'
        | '\u{06dd}'
        | '\u{070f}'
        | '\u{0890}'..='\u{0891}'
        | '\u{08e2}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180e}'
        | '\u{200b}'
        | '\u{2060}'..='\u{2065}'
        | '\u{206a}'..='\u{206f}'
        | '\u{3164}'
        | '\u{fdd0}'..='\u{fdef}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d159}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0080}'..='\u{e00ff}'
        | '\u{e01f0}'..='\u{e0fff}' => Flag::Hidden,
        c if u32::from(c) & 0xfffe == 0xfffe => Flag::Hidden,
        '\u{2028}' | '\u{2029}' => Flag::Control,
        '\n' | '\t' => return None,
        c if c.is_control() => Flag::Control,
        _ => return None,
    })
}

/// Returns true for the zero-width joiners, which many scripts and emoji need.
fn is_joiner(c: char) -> bool {
    matches!(c, '\u{200c}' | '\u{200d}')
}

/// Returns true for the selectors that display a symbol as text or as emoji.
fn is_emoji_selector(c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}')
}

/// Returns true for a non-ASCII space, and for a blank character that looks like one.
fn is_odd_space(c: char) -> bool {
    c == '\u{2800}' || (c.is_whitespace() && !c.is_ascii() && !is_line_break(c))
}

fn clean_noting<'t>(text: &'t str, flags: &mut BTreeSet<Flag>) -> Cow<'t, str> {
    if text.bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(clean_pairs(&clean_singles(text, flags), flags))
}

/// Applies the rules for single characters, which do not depend on their neighbours.
fn clean_singles(text: &str, flags: &mut BTreeSet<Flag>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        // The one-character escape introducers are checked first, because they are control characters too.
        if matches!(c, '\u{1b}' | '\u{9b}' | '\u{9d}' | '\u{90}') {
            flags.insert(Flag::Escape);
            skip_escape(c, &mut chars);
        } else if c == '\r' && chars.peek() == Some(&'\n') {
            // This carriage return is dropped, because the line feed that follows is the line break.
        } else if is_line_break(c) {
            if c != '\n' {
                flags.insert(Flag::Control);
            }
            out.push('\n');
        } else if let Some(flag) = flag_of(c) {
            flags.insert(flag);
        } else {
            out.push(if is_odd_space(c) { ' ' } else { c });
        }
    }
    out
}

/// Removes joiners and emoji selectors whose neighbours do not need them.
fn clean_pairs(text: &str, flags: &mut BTreeSet<Flag>) -> String {
    // An angle bracket is not wide, because it becomes `&lt;`, which is ASCII.
    let is_wide = |c: char| !c.is_ascii() && !is_joiner(c) && !markup::is_angle(c);
    let joins = |c: Option<char>| c.is_some_and(is_wide);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut last = None;
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        if is_joiner(c) && !(joins(last) && joins(next.filter(|next| !is_emoji_selector(*next)))) {
            flags.insert(Flag::Hidden);
            continue;
        }
        if is_emoji_selector(c) && !last.is_some_and(|base| takes_selector(base, next)) {
            flags.insert(Flag::Variations);
            continue;
        }
        out.push(c);
        last = Some(c);
    }
    out
}

/// Returns true for a symbol that may have an emoji form.
///
/// Such a symbol is neither a letter nor a digit, or it is the base of a keycap.
fn takes_selector(base: char, next: Option<char>) -> bool {
    match base {
        '0'..='9' | '#' | '*' => next == Some('\u{20e3}'),
        base => {
            let is_symbol = !base.is_ascii() && !base.is_alphanumeric() && !markup::is_angle(base);
            is_symbol && !is_joiner(base) && !is_emoji_selector(base)
        }
    }
}

/// Skips the rest of an escape sequence. A control string without a terminator is kept as text.
fn skip_escape(introducer: char, chars: &mut Peekable<Chars<'_>>) {
    /// Maximum length of a control string; longer than any legitimate sequence.
    const LONGEST: usize = 4096;
    let kind = match introducer {
        '\u{9b}' => '[',
        '\u{9d}' | '\u{90}' => ']',
        // A line break after an escape character is kept, because it still ends the line.
        _ => match chars.next_if(|c| !is_line_break(*c) && *c != '\u{1b}') {
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
            let is_end = |c: &char| matches!(c, '\u{7}' | '\u{9c}' | '\u{1b}');
            let Some(end) = chars.clone().take(LONGEST).position(|c| is_end(&c)) else { return };
            if chars.nth(end) == Some('\u{1b}') {
                chars.next_if_eq(&'\\');
            }
        }
        ' '..='/' => {
            chars.next_if(|c| !is_line_break(*c) && *c != '\u{1b}');
        }
        _ => {}
    }
}

#[cfg(test)]
#[path = "sanitize_tests.rs"]
mod tests;
