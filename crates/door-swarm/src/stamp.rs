//! Times as the protocol writes them: UTC, milliseconds, `Z`.

use jiff::Timestamp;

/// A time in the one form that every implementation renders alike: 24 characters, milliseconds cut off.
pub(crate) fn render(at: Timestamp) -> String {
    let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// The time that a text names. Only UTC, only full dates and times: an offset or a 24th hour is refused rather than
/// guessed at.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let (bare, rest) = text.split_at_checked(19)?;
    let shape = |(n, b): (usize, u8)| match n {
        4 | 7 => b == b'-',
        10 => b == b'T',
        13 | 16 => b == b':',
        _ => b.is_ascii_digit(),
    };
    if !bare.bytes().enumerate().all(shape) || &bare[17..] > "59" || &bare[11..13] > "23" {
        return None;
    }
    let fraction = rest.strip_suffix('Z').or_else(|| rest.strip_suffix("+00:00"))?;
    let digits = fraction.strip_prefix('.').unwrap_or("0");
    let is_fraction = fraction.is_empty() || (1..=9).contains(&digits.len());
    if !is_fraction
        || (!fraction.is_empty() && !fraction.starts_with('.'))
        || !digits.bytes().all(|b| b.is_ascii_digit())
    {
        return None;
    }
    format!("{bare}{fraction}Z").parse().ok()
}

#[cfg(test)]
#[path = "stamp_tests.rs"]
mod tests;
