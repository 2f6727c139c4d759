//! The way to a model's API over HTTP: one POST, tried again when the other end has too much to do.

use std::fmt;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use super::error::ModelError;
use crate::error::chain;
use crate::redact::{Secrets, redact};

/// How often a request is made at most.
const ATTEMPTS: u32 = 4;

/// The wait before the second attempt where the other end names none. It doubles, and up to half is left to chance.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The longest answer that is read; a model's longest is a hundredth of it.
const ANSWER_LIMIT: usize = 16 << 20;

/// How much of an error is passed on.
const SAID_LIMIT: usize = 300;

/// The code that Anthropic has for "overloaded".
const OVERLOADED: u16 = 529;

/// A key. It is shown to nobody but whom it is for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    pub(super) fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// Where a model is, and how it knows us.
#[derive(Debug)]
pub(super) struct Endpoint {
    client: Client,
    url: Url,
    headers: HeaderMap,
    secrets: Secrets,
    variable: &'static str,
    model: String,
}

impl Endpoint {
    /// `header` carries the key, which came from `variable`; `scheme` stands before it.
    pub(super) fn new(
        url: Url,
        key: Option<&Key>,
        (header, scheme, variable): (&'static str, &'static str, &'static str),
        model: &str,
    ) -> Result<Self, ModelError> {
        let shown = shown(&url);
        let mut secrets = Secrets::default();
        let mut headers = HeaderMap::new();
        if let Some(Key(key)) = key {
            secrets.add(key);
            let mut value = HeaderValue::from_str(&format!("{scheme}{key}"))
                .map_err(|_| ModelError::BadKey { variable })?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(header), value);
        }
        if let Some(password) = url.password() {
            secrets.add(password);
        }
        // A redirect would take the key to where nobody chose to send it.
        let mut builder = Client::builder().redirect(Policy::none()).connect_timeout(Duration::from_secs(10));
        if is_this_machine(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(|error| ModelError::Unreachable {
            url: shown,
            cause: redact(&chain(&error), &secrets),
        })?;
        Ok(Self { client, url, headers, secrets, variable, model: model.to_owned() })
    }

    /// Adds a header of every request.
    pub(super) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// The model's name.
    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Sends one request and reads the answer. Whoever waits for it decides for how long; after `until` nobody does.
    pub(super) async fn post<A: for<'de> Deserialize<'de>>(
        &self,
        body: &impl Serialize,
        until: Instant,
    ) -> Result<A, ModelError> {
        let body = serde_json::to_vec(body).map_err(|error| self.unreadable(&error.to_string()))?;
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let (failure, named) = match self.send(body.clone()).await {
                Ok((StatusCode::OK, _, answer)) => {
                    return serde_json::from_slice(&answer)
                        .map_err(|error| self.unreadable(&error.to_string()));
                }
                Ok((status, named, answer)) => (self.failure(status, attempt, &answer), named),
                Err(error) => (error, None),
            };
            let pause = named.unwrap_or_else(|| wait.mul_f64(1.0 + fastrand::f64() / 2.0));
            // To wait until nobody wants the answer any more helps nobody.
            if attempt == ATTEMPTS || !is_passing(&failure) || Instant::now() + pause >= until {
                return Err(failure);
            }
            tracing::info!(error = %failure, ?pause, "the model is asked again");
            sleep(pause).await;
            wait *= 2;
        }
        Err(self.unreachable("it was not asked"))
    }

    async fn send(&self, body: Vec<u8>) -> Result<(StatusCode, Option<Duration>, Vec<u8>), ModelError> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header("content-type", "application/json").body(body);
        let response = request.send().await.map_err(|error| self.unreachable(&chain(&error)))?;
        let (status, named) = (response.status(), retry_after(&response));
        Ok((status, named, self.read(response).await?))
    }

    async fn read(&self, mut response: Response) -> Result<Vec<u8>, ModelError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unreachable(&chain(&error)))? {
            if bytes.len() + chunk.len() > ANSWER_LIMIT {
                return Err(self.unreadable(&format!("it is longer than {ANSWER_LIMIT} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// The one place where an answer of the API becomes an error.
    fn failure(&self, status: StatusCode, attempts: u32, answer: &[u8]) -> ModelError {
        let (url, said) = (shown(&self.url), self.said(answer));
        let status = status.as_u16();
        match status {
            401 | 403 => ModelError::KeyRefused { url, status, variable: self.variable, said },
            404 => ModelError::NotFound { url, model: self.model.clone(), said },
            408 | 429 | OVERLOADED | 500..=599 => ModelError::Overloaded { url, status, attempts, said },
            _ => ModelError::Refused { url, status, said },
        }
    }

    /// What the other end said of an error, without secrets, in one line.
    fn said(&self, answer: &[u8]) -> String {
        #[derive(Deserialize)]
        struct Envelope {
            error: ErrorBody,
        }
        #[derive(Deserialize)]
        struct ErrorBody {
            message: String,
        }
        let text = match serde_json::from_slice::<Envelope>(answer) {
            Ok(envelope) => envelope.error.message,
            Err(_) => String::from_utf8_lossy(answer).into_owned(),
        };
        let text = switchboard_core::sanitize_description(&redact(&text, &self.secrets)).text;
        let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(SAID_LIMIT).collect()
    }

    fn unreachable(&self, cause: &str) -> ModelError {
        ModelError::Unreachable { url: shown(&self.url), cause: redact(cause, &self.secrets) }
    }

    /// The error of an answer that is none.
    pub(super) fn unreadable(&self, problem: &str) -> ModelError {
        ModelError::Unreadable { from: shown(&self.url), problem: redact(problem, &self.secrets) }
    }
}

/// Whether an address is on this machine, where a key may go unencrypted and no proxy is needed.
pub(super) fn is_this_machine(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost" | "[::1]") => true,
        Some(host) => host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback()),
        None => false,
    }
}

/// The address without what may be secret in it.
fn shown(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

/// Whether the same request may succeed a little later.
fn is_passing(error: &ModelError) -> bool {
    matches!(error, ModelError::Overloaded { .. } | ModelError::Unreachable { .. })
}

/// How long the other end wants us to wait, in seconds; a date is not worth reading for this.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds: f64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}
