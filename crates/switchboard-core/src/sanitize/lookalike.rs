//! Look-alikes (homoglyphs) of ASCII letters, for tag names and commands.

/// Code points of the mathematical alphabets. Each alphabet has 26 capitals, then 26 small letters.
const MATHEMATICAL: std::ops::RangeInclusive<u32> = 0x1d400..=0x1d6a3;

/// First letters of the character rows that copy A to Z: full-width, circled, parenthesized and squared letters.
const ROWS: [u32; 9] = [0xff21, 0xff41, 0x24b6, 0x24d0, 0x249c, 0x1f110, 0x1f130, 0x1f150, 0x1f170];

/// Cyrillic, Greek and other letters that look like an ASCII letter, both capital and small.
const ALIKE: [(char, &str); 24] = [
    ('a', "аΑАαɑ"),
    ('b', "ЬВΒв"),
    ('c', "сСϲⅽⅭ"),
    ('d', "ԁⅾⅮ"),
    ('e', "еЕΕℯе"),
    ('f', "ƒſ"),
    ('g', "ɡԍ"),
    ('h', "һНΗհ"),
    ('i', "іІΙιıӏⅰⅠℹ"),
    ('j', "јЈϳ"),
    ('k', "кКΚκK"),
    ('l', "ⅼⅬℓ"),
    ('m', "мМΜⅿⅯ"),
    ('n', "пΝոν"),
    ('o', "оОΟοօ"),
    ('p', "рРΡρ"),
    ('r', "гꭇ"),
    ('s', "ѕЅꜱ"),
    ('t', "тТΤτ"),
    ('u', "υцս"),
    ('v', "ѵѴⅴⅤ"),
    ('w', "ԝԜѡ"),
    ('x', "хХΧχⅹⅩ"),
    ('y', "уУΥγү"),
];

/// Maps a character to the small ASCII letter that it is or looks like. Other characters are unchanged.
pub(super) fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let code = u32::from(c);
    if MATHEMATICAL.contains(&code) {
        return letter_at((code - MATHEMATICAL.start()) % 26);
    }
    if let Some(first) = ROWS.iter().find(|first| (**first..**first + 26).contains(&code)) {
        return letter_at(code - first);
    }
    ALIKE.iter().find(|(_, alike)| alike.contains(c)).map_or(c, |(letter_at, _)| *letter_at)
}

/// Returns true for a non-ASCII letter or sign that looks like an ASCII one.
fn is_lookalike(c: char) -> bool {
    const SIGNS: &str = "‐‑‒–—−⁃․‥⁄∕╱⧸‚‘’‛“”′″´˝；︰∶꞉ː⁏❘∣ǀ﹨∖⧵＄";
    !c.is_ascii() && (fold(c).is_ascii() || SIGNS.contains(c) || ('\u{ff01}'..='\u{ff5e}').contains(&c))
}

/// Escapes the look-alikes of a word, unless the whole word is in another script.
pub(super) fn push_revealed(word: &str, shown: &mut String) {
    let is_foreign = |c: char| c.is_alphabetic() && !is_lookalike(c) && !c.is_ascii();
    let is_of_other_script = word.chars().any(is_foreign) && !word.chars().any(|c| c.is_ascii_alphabetic());
    for c in word.chars() {
        if is_lookalike(c) && !is_of_other_script {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
}

/// Returns the small letter at this position of the alphabet, counted from 0.
fn letter_at(number: u32) -> char {
    u8::try_from(number).map_or('a', |number| char::from(b'a' + number % 26))
}
