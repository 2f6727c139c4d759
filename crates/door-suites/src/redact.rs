//! Secrets taken out of what is logged, shown or reported.

mod shapes;

use std::collections::BTreeMap;
use switchboard_sys::process::PROXY_VARIABLES;

use crate::spec::{ChildSpec, Launch};

/// What stands in place of a secret.
pub const REDACTED: &str = "[redacted]";

/// Shorter values are words like `true` or `1`, and taking those out of a text would leave nothing of it.
const SHORTEST: usize = 6;

/// The values that must not be shown.
#[derive(Clone, Default)]
pub struct Secrets {
    /// The longest first, so that of two that overlap the longer one is found.
    values: Vec<String>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.values.len())
    }
}

impl Secrets {
    /// The secrets of a child: values of its variables and headers that are called like secrets or look like
    /// them, what came from a variable of the user into a header, and a password in its address.
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
                // `Bearer abc`: the token alone is as secret as the whole.
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
        // A program is given the proxies of ours.
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

    /// Adds a value.
    pub fn add(&mut self, value: &str) {
        let value = value.trim();
        if value.len() >= SHORTEST && !self.values.iter().any(|known| known == value) {
            self.values.push(value.to_owned());
            self.values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        }
    }

    /// Adds everything that is secret to someone else.
    pub fn extend(&mut self, other: &Self) {
        for value in &other.values {
            self.add(value);
        }
    }
}

/// The text without the secrets, and without what looks like one: bearer tokens, keys of well-known services,
/// passwords in addresses.
pub fn redact(text: &str, secrets: &Secrets) -> String {
    let mut text = text.to_owned();
    for value in &secrets.values {
        if text.contains(value.as_str()) {
            text = text.replace(value.as_str(), REDACTED);
        }
    }
    shapes::redact(&text)
}

/// An address without the password in it.
pub(crate) fn without_password(url: &str) -> String {
    shapes::without_passwords(url)
}

/// Variables or headers as they may be shown.
pub fn redact_values(values: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let show = |name: &str, value: &str| {
        if is_secret(name, value) && !is_reference(value) {
            REDACTED.to_owned()
        } else {
            shapes::redact(value)
        }
    };
    values.iter().map(|(name, value)| (name.clone(), show(name, value))).collect()
}

/// Whether a value is only the name of where the secret is, which is no secret.
pub(crate) fn is_reference(value: &str) -> bool {
    let rest = value.strip_prefix("Bearer ").unwrap_or(value);
    rest.starts_with("${") && rest.ends_with('}') && !rest.contains(":-") && rest.matches("${").count() == 1
}

/// Whether a value is called like a secret or looks like one.
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
    is_named || shapes::redact(value) != value
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
