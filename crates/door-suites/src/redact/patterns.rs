//! Detection of secrets by their textual pattern.

use super::REDACTED;

/// Prefixes of keys of well-known services, each with the minimum number of characters after the prefix.
const PREFIXES: [(&str, usize); 26] = [
    ("sk-", 16),
    ("sk_live_", 16),
    ("sk_test_", 16),
    ("rk_live_", 16),
    ("ghp_", 20),
    ("gho_", 20),
    ("ghu_", 20),
    ("ghs_", 20),
    ("ghr_", 20),
    ("github_pat_", 20),
    ("glpat-", 16),
    ("xoxb-", 10),
    ("xoxp-", 10),
    ("xoxa-", 10),
    ("xapp-", 10),
    ("AKIA", 16),
    ("ASIA", 16),
    ("AIza", 30),
    ("npm_", 30),
    ("pypi-", 30),
    ("hf_", 20),
    ("lin_api_", 20),
    ("ntn_", 20),
    ("sbp_", 20),
    ("dop_v1_", 20),
    ("eyJ", 30),
];

/// Keywords after which any token is considered a secret.
const KEYWORDS: [&str; 14] = [
    "bearer ",
    "basic ",
    "api_key=",
    "apikey=",
    "api-key=",
    "access_token=",
    "auth_token=",
    "client_secret=",
    "password=",
    "passwd=",
    "secret=",
    "token=",
    "x-api-key: ",
    "key=",
];

/// Redacts everything that looks like a secret.
pub(super) fn redact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut is_start = true;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        if is_start && let Some((keep, len)) = secret_after_keyword(rest).or_else(|| service_key(rest)) {
            out.push_str(&rest[..keep]);
            out.push_str(REDACTED);
            at += len;
            is_start = false;
            continue;
        }
        if let Some((keep, len)) = password_in_address(rest) {
            out.push_str(&rest[..keep]);
            out.push_str(REDACTED);
            at += len;
            continue;
        }
        out.push(c);
        at += c.len_utf8();
        is_start = !c.is_ascii_alphanumeric();
    }
    out
}

/// Redacts passwords in URLs and nothing else.
pub(super) fn without_passwords(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (keep, len) =
            password_in_address(&rest[at..]).map_or((at + 3, at + 3), |(k, l)| (at + k, at + l));
        out.push_str(&rest[..keep]);
        if len > keep {
            out.push_str(REDACTED);
        }
        rest = &rest[len..];
    }
    out.push_str(rest);
    out
}

/// Matches a keyword followed by a secret, such as `bearer abc…`. Returns the length to keep and the total length.
fn secret_after_keyword(text: &str) -> Option<(usize, usize)> {
    let lead = KEYWORDS
        .iter()
        .find(|lead| text.get(..lead.len()).is_some_and(|start| start.eq_ignore_ascii_case(lead)))?;
    let value = &text[lead.len()..];
    // Short words are ordinary prose, and placeholders are not secrets.
    let len = value.find(|c: char| !is_token(c)).unwrap_or(value.len());
    let is_long = len >= if lead.ends_with('=') { 6 } else { 8 };
    let is_placeholder = value.starts_with("${") || value.starts_with(REDACTED);
    (is_long && !is_placeholder).then_some((lead.len(), lead.len() + len))
}

/// Matches a key of a well-known service.
fn service_key(text: &str) -> Option<(usize, usize)> {
    let (prefix, least) = PREFIXES.iter().find(|(prefix, _)| text.starts_with(prefix))?;
    let value = &text[prefix.len()..];
    let len = value.find(|c: char| !is_token(c)).unwrap_or(value.len());
    (len >= *least).then_some((0, prefix.len() + len))
}

/// Matches the password in `://user:password@`. Returns the offsets of the password and of the `@`.
fn password_in_address(text: &str) -> Option<(usize, usize)> {
    let after = text.strip_prefix("://")?;
    let end = after
        .find(|c: char| c.is_whitespace() || matches!(c, '/' | '?' | '#' | '"' | '\''))
        .unwrap_or(after.len());
    let at = after[..end].rfind('@')?;
    let colon = after[..at].find(':')?;
    let password = &after[colon + 1..at];
    let is_one = !password.is_empty() && !password.starts_with("${") && password != REDACTED;
    is_one.then_some((3 + colon + 1, 3 + at))
}

fn is_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '+' | '/' | '=' | '~' | '%')
}
