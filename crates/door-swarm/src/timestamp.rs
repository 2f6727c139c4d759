//! Timestamps of the protocol: UTC with milliseconds and the suffix `Z`.

use jiff::Timestamp;

/// Formats a time in the only form that all implementations write: 24 characters, truncated to milliseconds.
pub(crate) fn render(at: Timestamp) -> String {
    let at = Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
    at.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// Parses a full date and time in UTC. An offset or hour 24 is refused instead of interpreted.
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
#[path = "timestamp_tests.rs"]
mod tests;
