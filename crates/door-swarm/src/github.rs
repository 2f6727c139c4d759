//! GitHub webhooks (§8), which become notifications of a swarm.
//!
//! Webhooks have their own listener, and each request must carry GitHub's signature.

use aws_lc_rs::hmac;
use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use switchboard_core::describe_json_error;

use crate::config::GitHub;
use crate::refusal::Refusal;
use crate::send::OutgoingMessage;
use crate::swarms::Swarms;
use crate::wire::{Action, MessageType, Reference, ReferenceType};

/// Maximum size of a webhook body. GitHub's own limit is 25 MiB, but the five supported events need only a few tens of
/// kilobytes.
const MAX_BODY_BYTES: usize = 1 << 20;

#[derive(Clone)]
struct WebhookServer {
    swarms: Swarms,
    config: GitHub,
}

/// A webhook event, translated to the actions of §8.2.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Event {
    action: &'static str,
    text: String,
    url: String,
    reference: Reference,
}

/// Builds the router for GitHub webhooks.
pub(crate) fn router(swarms: Swarms, config: GitHub) -> Router {
    Router::new()
        .route("/hooks/github", post(handle).fallback(async || Refusal::method_not_allowed("POST")))
        .fallback(async || Refusal::not_found())
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(WebhookServer { swarms, config })
}

async fn handle(
    State(server): State<WebhookServer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let Ok(body) = body else { return Refusal::too_large(MAX_BODY_BYTES).into_response() };
    match server.accept_webhook(&headers, &body).await {
        Ok(answer) => (StatusCode::OK, answer.to_string()).into_response(),
        Err(problem) => problem.into_response(),
    }
}

impl WebhookServer {
    async fn accept_webhook(&self, headers: &HeaderMap, body: &[u8]) -> Result<Value, Refusal> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let signature = text("x-hub-signature-256").and_then(|text| text.strip_prefix("sha256="));
        if !signature.is_some_and(|signature| is_signed(self.config.secret.reveal(), body, signature)) {
            return Err(Refusal::invalid_signature(
                "X-Hub-Signature-256 is missing or wrong; check the webhook's secret",
            ));
        }
        let payload = crate::wire::parse_json(body).map_err(|error| {
            Refusal::invalid_format(format!("the body is not JSON: {}", describe_json_error(&error)))
        })?;
        let Some(event) = parse_event(text("x-github-event").unwrap_or_default(), &payload) else {
            return Ok(json!({ "status": "ignored" }));
        };
        let repo = event.reference.repo.as_deref().unwrap_or_default();
        if !self.config.repos.is_empty()
            && !self.config.repos.iter().any(|known| known.eq_ignore_ascii_case(repo))
        {
            return Ok(json!({ "status": "ignored" }));
        }
        let mut message = OutgoingMessage::new(event.text);
        message.swarm = self.config.swarm.clone();
        message.kind = MessageType::Notification;
        message.references = vec![event.reference];
        message.metadata.insert("github_url".to_owned(), event.url.into());
        message.metadata.insert("action".to_owned(), event.action.into());
        message.metadata.insert("event".to_owned(), format!("github:{}", event.action).into());
        // GitHub redelivers an event that got no answer, so its delivery id is the idempotency key.
        message.key =
            text("x-github-delivery").map(|id| format!("github {}", id.chars().take(64).collect::<String>()));
        let accepted = self.swarms.send(message).await?;
        Ok(json!({ "status": "queued", "id": accepted.id.to_string() }))
    }
}

/// Returns true if the body is signed with the secret. The comparison takes constant time.
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

/// Parses one of the five supported events; `None` for any other.
fn parse_event(kind: &str, payload: &Value) -> Option<Event> {
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
