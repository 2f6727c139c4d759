//! Parsers of option values. Errors say which form is accepted.

use std::fmt::Display;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use axum::http::HeaderName;
use jiff::{SignedDuration, Timestamp};

/// Upper bound of a duration, about a hundred years. Later times do not fit into a timestamp of the journal.
const LONGEST: Duration = Duration::from_hours(24 * 36_500);

/// Units of a duration and their lengths in milliseconds. `ms` is for scripts that poll.
const UNITS: [(&str, f64); 5] =
    [("ms", 1.0), ("s", 1_000.0), ("m", 60_000.0), ("h", 3_600_000.0), ("d", 86_400_000.0)];

/// An integer type that an option accepts.
pub(crate) trait Integer: FromStr + Copy + Display {
    const MIN: Self;
    const MAX: Self;
}

macro_rules! integers {
    ($($type:ty),+) => { $(impl Integer for $type { const MIN: Self = Self::MIN; const MAX: Self = Self::MAX; })+ };
}
integers!(u16, u32, u64, usize, i64);

/// Parses a whole number.
pub(crate) fn number<T: Integer>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match (is_whole, text.starts_with('-')) {
            (false, _) => "it is not a whole number".to_owned(),
            (true, true) => format!("it must be {} or more", T::MIN),
            (true, false) => format!("it must be {} or less", T::MAX),
        }
    })
}

/// Parses a duration, such as `90s`, `15m`, `8h`, `2d` or `1h30m`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let refuse = |problem: &str| format!("'{}' {problem}; write 30s, 15m, 8h or 2d", text.escape_debug());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(refuse("is empty"));
    }
    let mut millis = 0.0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let number: f64 = number.parse().map_err(|_| refuse("is not a duration"))?;
        let Some((_, length)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(refuse(if unit.is_empty() && after.is_empty() {
                "has no unit"
            } else {
                "is not a duration"
            }));
        };
        millis += number * length;
        rest = after.trim_start();
    }
    let duration = Duration::try_from_secs_f64(millis / 1_000.0).ok().filter(|duration| *duration <= LONGEST);
    duration.ok_or_else(|| refuse("is longer than a hundred years"))
}

/// Parses a duration that is longer than zero.
pub(crate) fn nonzero_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err(format!("'{}' is no time at all; write 30s, 15m, 8h or 2d", text.escape_debug()))
        }
        duration => Ok(duration),
    }
}

/// Parses the duration of a lease or another lifetime, which must be longer than zero.
pub(crate) fn lifetime(text: &str) -> Result<SignedDuration, String> {
    let duration = nonzero_duration(text)?;
    SignedDuration::try_from(duration).map_err(|_| "it is too long".to_owned())
}

/// Parses a timestamp.
pub(crate) fn timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "it is not a time; write it like 2026-02-05T14:30:00Z".to_owned())
}

/// Parses an IP address with a port.
pub(crate) fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is not an IP address with a port; write it like 127.0.0.1:8443".to_owned())
}

/// Parses a port number.
pub(crate) fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "a port is a number from 0 to 65535 (--port or SWITCHBOARD_PORT)".to_owned())
}

/// Parses the name of an HTTP header.
pub(crate) fn header_name(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| "it is not the name of an HTTP header, such as x-forwarded-for".to_owned())
}

#[cfg(test)]
#[path = "values_tests.rs"]
mod tests;
