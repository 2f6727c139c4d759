//! §8: webhooks of GitHub become notifications of a swarm. On a listener of its own, and only when GitHub signed them.

use aws_lc_rs::hmac;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

use crate::config::GitHub;
use crate::problem::Problem;
use crate::send::Letter;
use crate::swarms::Swarms;
use crate::wire::{Action, MessageType, Reference, ReferenceType};

/// GitHub's own limit is 25 MiB; the five kinds of events that count have a few tens of kilobytes.
const LIMIT: usize = 1 << 20;

#[derive(Clone)]
struct Hooks {
    swarms: Swarms,
    config: GitHub,
}

/// What a webhook is about, in the words of §8.2.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    action: &'static str,
    text: String,
    url: String,
    reference: Reference,
}

/// The router for webhooks.
pub(crate) fn router(swarms: Swarms, config: GitHub) -> Router {
    Router::new()
        .route("/hooks/github", post(take).fallback(async || Problem::method("POST")))
        .fallback(async || Problem::no_such_place())
        .layer(DefaultBodyLimit::max(LIMIT))
        .with_state(Hooks { swarms, config })
}

async fn take(
    State(hooks): State<Hooks>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else { return Problem::too_large(LIMIT).into_response() };
    match hooks.take(&headers, &body).await {
        Ok(answer) => (StatusCode::OK, answer.to_string()).into_response(),
        Err(problem) => problem.into_response(),
    }
}

impl Hooks {
    async fn take(&self, headers: &HeaderMap, body: &[u8]) -> Result<Value, Problem> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let signature = text("x-hub-signature-256").and_then(|text| text.strip_prefix("sha256="));
        if !signature.is_some_and(|signature| is_signed(self.config.secret.reveal(), body, signature)) {
            return Err(Problem::signature(
                "X-Hub-Signature-256 is missing or wrong; check the webhook's secret",
            ));
        }
        let payload = crate::strict::parse(body)
            .map_err(|error| Problem::format(format!("the body is not JSON: {error}")))?;
        let Some(event) = event(text("x-github-event").unwrap_or_default(), &payload) else {
            return Ok(json!({ "status": "ignored" }));
        };
        let repo = event.reference.repo.as_deref().unwrap_or_default();
        if !self.config.repos.is_empty()
            && !self.config.repos.iter().any(|known| known.eq_ignore_ascii_case(repo))
        {
            return Ok(json!({ "status": "ignored" }));
        }
        let mut letter = Letter::new(event.text);
        letter.swarm = self.config.swarm.clone();
        letter.kind = MessageType::Notification;
        letter.references = vec![event.reference];
        letter.metadata.insert("github_url".to_owned(), event.url.into());
        letter.metadata.insert("action".to_owned(), event.action.into());
        letter.metadata.insert("event".to_owned(), format!("github:{}", event.action).into());
        // GitHub sends again what it got no answer to.
        letter.key =
            text("x-github-delivery").map(|id| format!("github {}", id.chars().take(64).collect::<String>()));
        let accepted = self.swarms.send(letter).await?;
        Ok(json!({ "status": "queued", "id": accepted.id.to_string() }))
    }
}

/// Whether GitHub signed the body with the secret. Takes as long for a wrong signature as for a right one.
fn is_signed(secret: &str, body: &[u8], signature: &str) -> bool {
    let (pairs, rest) = signature.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let Some(signature) = pairs.iter().map(byte).collect::<Option<Vec<u8>>>().filter(|_| rest.is_empty())
    else {
        return false;
    };
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    hmac::verify(&key, body, &signature).is_ok()
}

/// The event that a payload tells of, where it is one of the five.
fn event(kind: &str, payload: &Value) -> Option<Event> {
    let text = |path: &str| payload.pointer(path).and_then(Value::as_str);
    let (action, thing, word): (&'static str, &str, &str) = match (kind, text("/action")?) {
        ("issues", "opened") => ("issue_created", "/issue", "New issue"),
        ("issues", "assigned") => ("issue_assigned", "/issue", "Issue assigned"),
        ("issue_comment", "created") => ("comment_added", "/issue", "New comment on"),
        ("pull_request", "opened") => ("pr_opened", "/pull_request", "New pull request"),
        ("pull_request", "review_requested") => ("review_requested", "/pull_request", "Review requested for"),
        _ => return None,
    };
    let number = payload.pointer(&format!("{thing}/number")).and_then(Value::as_u64)?;
    let title: String =
        text(&format!("{thing}/title"))?.chars().filter(|c| !c.is_control()).take(200).collect();
    let url = match kind {
        "issue_comment" => text("/comment/html_url")?,
        _ => text(&format!("{thing}/html_url"))?,
    };
    let is_pull = thing == "/pull_request" || payload.pointer("/issue/pull_request").is_some();
    let reference = Reference {
        kind: if is_pull { ReferenceType::GithubPr } else { ReferenceType::GithubIssue },
        repo: Some(text("/repository/full_name")?.to_owned()),
        number: Some(number),
        sha: None,
        url: None,
        action: Some(match action {
            "issue_assigned" => Action::Assigned,
            "review_requested" => Action::ReviewRequested,
            _ => Action::Mention,
        }),
    };
    reference.check().ok()?;
    Some(Event { action, text: format!("{word}: #{number} {title}"), url: url.to_owned(), reference })
}

#[cfg(test)]
#[path = "github_tests.rs"]
mod tests;
