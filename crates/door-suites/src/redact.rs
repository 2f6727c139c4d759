//! Redaction of secrets in logs, errors and reports.

mod patterns;

use std::collections::BTreeMap;
use switchboard_sys::process::PROXY_VARIABLES;

use crate::spec::{ChildSpec, Launch};

/// Placeholder for a secret.
pub const REDACTED: &str = "[redacted]";

/// Minimum length of a value that is redacted. Shorter values are words like `true` or `1`; redacting them would make
/// texts unreadable.
const SHORTEST: usize = 6;

/// Set of secret values to be redacted.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The secret values, longest first, so that the longer one of two overlapping values is redacted.
    values: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.values.len())
    }
}

impl Secrets {
    /// Collects the secrets of a child.
    ///
    /// Secrets are variables and headers that are named or look like secrets, header values expanded from the user's
    /// variables, and the password in the URL.
    pub fn of(spec: &ChildSpec) -> Self {
        let mut secrets = Self::default();
        let (values, template, url) = match &spec.launch {
            Launch::Stdio { env, .. } => (env, &spec.template.env, None),
            Launch::Http { url, headers } | Launch::Sse { url, headers } | Launch::Ws { url, headers } => {
                (headers, &spec.template.headers, Some(url))
            }
        };
        for (name, value) in values {
            let from_user = url.is_some() && template.get(name).is_some_and(|text| text.contains("${"));
            if is_secret(name, value) || from_user {
                secrets.add(value);
                // In `Bearer abc`, the token alone is also secret.
                if let Some((_, token)) = value.split_once(' ') {
                    secrets.add(token);
                }
            }
        }
        if let Some(password) =
            url.and_then(|url| reqwest::Url::parse(url).ok()?.password().map(str::to_owned))
        {
            secrets.add(&password);
        }
        // Started programs inherit this process's proxy settings, which may contain passwords.
        let proxies = PROXY_VARIABLES.iter().filter_map(|name| std::env::var(name).ok());
        for proxy in proxies.filter(|_| url.is_none()) {
            if let Some(password) =
                reqwest::Url::parse(&proxy).ok().and_then(|url| url.password().map(str::to_owned))
            {
                secrets.add(&password);
            }
        }
        secrets
    }

    /// Adds a secret value.
    pub fn add(&mut self, value: &str) {
        let value = value.trim();
        if value.len() >= SHORTEST && !self.values.iter().any(|known| known == value) {
            self.values.push(value.to_owned());
            self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        }
    }

    /// Adds all secret values of another set.
    pub fn extend(&mut self, other: &Self) {
        for value in &other.values {
            self.add(value);
        }
    }
}

/// Redacts known secrets and everything that looks like one.
///
/// Bearer tokens, keys of well-known services and passwords in URLs look like secrets.
pub fn redact(text: &str, secrets: &Secrets) -> String {
    let mut text = text.to_owned();
    for value in &secrets.values {
        if text.contains(value.as_str()) {
            text = text.replace(value.as_str(), REDACTED);
        }
    }
    patterns::redact(&text)
}

/// Redacts the password in a URL.
pub(crate) fn without_password(url: &str) -> String {
    patterns::without_passwords(url)
}

/// Redacts the secret values in a map of variables or headers.
pub fn redact_values(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let show = |name: &str, value: &str| {
        if is_secret(name, value) && !is_reference(value) {
            REDACTED.to_owned()
        } else {
            patterns::redact(value)
        }
    };
    values.iter().map(|(name, value)| (name.clone(), show(name, value))).collect()
}

/// Returns true if a value is only a reference to a variable; the reference itself is not secret.
pub(crate) fn is_reference(value: &str) -> bool {
    let rest = value.strip_prefix("Bearer ").unwrap_or(value);
    rest.starts_with("${") && rest.ends_with('}') && !rest.contains(":-") && rest.matches("${").count() == 1
}

/// Returns true if a variable or header is named like a secret, or its value looks like one.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    const WORDS: [&str; 13] = [
        "token",
        "secret",
        "password",
        "passwd",
        "passphrase",
        "apikey",
        "accesskey",
        "privatekey",
        "credential",
        "authorization",
        "cookie",
        "dsn",
        "connectionstring",
    ];
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let upper = name.to_ascii_uppercase();
    let is_key = upper == "KEY" || upper.ends_with("_KEY") || upper.ends_with("-KEY");
    let is_named = is_key
        || WORDS.iter().any(|word| plain.contains(word))
        || upper.split(['_', '-']).any(|word| matches!(word, "AUTH" | "PASS" | "PWD" | "PAT"));
    is_named || patterns::redact(value) != value
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
