use std::path::Path;

use door_workspace::{Config, Tree, Workspace};
use jiff::SignedDuration;
use serde_json::{Map, json};
use switchboard_core::AgentId;
use switchboard_hub::{HubError, Registration};
use tempfile::TempDir;

use super::*;

struct Fixture {
    folder: TempDir,
    workspace: Workspace,
}

impl Fixture {
    async fn new(agents: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        Tree::create(folder.path()).unwrap();
        let workspace = Workspace::open(folder.path(), Config::default(), |_| {}).await.unwrap();
        for agent in agents {
            workspace.register(Registration::mailbox(agent.parse().unwrap())).await.unwrap();
        }
        Self { folder, workspace }
    }

    async fn send(&self, from: &str, request: Send) -> Result<Sent, ActionError> {
        let from = agent(from);
        let now = self.workspace.snapshot().await.unwrap();
        send(Actor::new(&self.workspace, &from), &now, None, request).await
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn agent(name: &str) -> AgentId {
    name.parse().unwrap()
}

fn task(to: &str, text: &str) -> Send {
    Send { to: Some(to.to_owned()), text: text.to_owned(), ..Send::default() }
}

#[test]
fn send_without_text_needs_data() {
    assert!(matches!(task("codex", " \n").check(), Err(ActionError::EmptyText)));
    let metadata = Map::from_iter([("ticket".to_owned(), json!(7))]);
    assert!(Send { metadata, ..task("codex", "") }.check().is_ok());
    assert!(Send { claim: Some("T-1:2".to_owned()), ..task("codex", "") }.check().is_ok());
}

#[test]
fn reply_is_a_result_by_default() {
    let reply = Send { reply_to: Some("msg_1".to_owned()), ..task("codex", "done") };
    assert_eq!(reply.check().unwrap().as_str(), "submit_result");
    assert_eq!(task("codex", "do it").check().unwrap().as_str(), "delegate_task");
}

#[test]
fn invalid_fields_are_refused_before_sending() {
    let refused = |change: fn(&mut Send)| {
        let mut send = task("codex", "hello");
        change(&mut send);
        send.check().unwrap_err().to_string()
    };
    assert_eq!(
        refused(|send| send.kind = Some("delegat_task".into())),
        "'delegat_task' is not a kind of message"
    );
    assert_eq!(refused(|send| send.claim = Some("T-1".into())), "the claim 'T-1' is not TASK:FENCE");
    assert_eq!(refused(|send| send.key = Some(" ".into())), "'key' is empty");
    assert_eq!(
        refused(|send| send.expires_in = Some(SignedDuration::ZERO)),
        "'expires_in' is 0 and must be longer"
    );
    assert_eq!(
        refused(|send| (send.replace, send.kind) = (true, Some("status_update".into()))),
        "only a task replaces earlier tasks, and this is status_update"
    );
}

#[tokio::test]
async fn retry_with_key_is_sent_once() {
    let f = Fixture::new(&["claude", "codex"]).await;
    let keyed = || Send { key: Some("k1".to_owned()), ..task("codex", "hello") };
    let first = f.send("claude", keyed()).await.unwrap().accepted;
    let second = f.send("claude", keyed()).await.unwrap().accepted;
    assert_eq!((first.id, second.duplicate), (second.id, true));
    let other = Send { text: "other".to_owned(), ..keyed() };
    assert!(f.send("claude", other).await.is_err());
}

#[tokio::test]
async fn claim_in_message_must_be_in_force() {
    let f = Fixture::new(&["claude", "codex"]).await;
    let me = agent("claude");
    let actor = Actor::new(&f.workspace, &me);
    let claimed = claim(actor, Claim { task: "T-1".to_owned(), ..Claim::default() }).await.unwrap();
    let under = |fence: i64| Send { claim: Some(format!("T-1:{fence}")), ..task("codex", "working on it") };
    assert!(f.send("claude", under(claimed.fence)).await.is_ok());
    release(actor, "T-1", claimed.fence).await.unwrap();
    let refused = f.send("claude", under(claimed.fence)).await.unwrap_err();
    assert!(matches!(
        refused,
        ActionError::Workspace(door_workspace::WorkspaceError::Hub(HubError::StaleClaim { .. }))
    ));
}

#[tokio::test]
async fn claim_needs_a_registered_agent() {
    let f = Fixture::new(&["claude"]).await;
    let me = agent("claud");
    let refused = claim(Actor::new(&f.workspace, &me), Claim { task: "T-1".to_owned(), ..Claim::default() });
    assert!(refused.await.unwrap_err().to_string().contains("claud"));
}

#[tokio::test]
async fn notes_are_one_short_line() {
    let f = Fixture::new(&["claude"]).await;
    let me = agent("claude");
    let actor = Actor::new(&f.workspace, &me);
    for note in [String::new(), "two\nlines".to_owned(), "x".repeat(501)] {
        let note = Some(note);
        let refused =
            claim(actor, Claim { task: "T-1".to_owned(), note: note.clone(), ..Claim::default() }).await;
        assert!(matches!(refused, Err(ActionError::Invalid { field: "note", .. })), "{note:?}");
        let paths = vec!["a.rs".to_owned()];
        let refused = reserve(actor, f.path(), Reserve { paths, note, ..Reserve::default() }).await;
        assert!(matches!(refused, Err(ActionError::Invalid { field: "note", .. })));
    }
}

#[tokio::test]
async fn release_of_unreserved_file_is_refused() {
    let f = Fixture::new(&["claude"]).await;
    let me = agent("claude");
    let actor = Actor::new(&f.workspace, &me);
    let paths = vec!["a.rs".to_owned()];
    let refused = release_reservations(actor, f.path(), &paths).await;
    assert!(matches!(refused, Err(ActionError::NotReserved { .. })));
    reserve(actor, f.path(), Reserve { paths: paths.clone(), ..Reserve::default() }).await.unwrap();
    assert_eq!(release_reservations(actor, f.path(), &paths).await.unwrap(), 1);
}

#[tokio::test]
async fn acknowledgement_reports_each_message() {
    let f = Fixture::new(&["claude", "codex"]).await;
    let sent = f.send("claude", task("codex", "hello")).await.unwrap().accepted;
    let me = agent("codex");
    let ids = vec![door_workspace::to_native(sent.id), "msg_0_none".to_owned()];
    let request =
        Acknowledge { ids, status: Some(AckStatus::Failed), note: Some("no\n compiler".to_owned()) };
    let results = acknowledge(Actor::new(&f.workspace, &me), request).await.unwrap();
    assert!(results[0].1.as_ref().is_ok_and(|done| done.is_new));
    assert!(results[1].1.is_err());
    let view = receipt(Actor::new(&f.workspace, &me), &results[0].0).await.unwrap();
    assert_eq!(view.receipt.deliveries[0].note.as_deref(), Some("failed: no compiler"));
}

#[tokio::test]
async fn strangers_read_no_receipt_and_find_nothing() {
    let f = Fixture::new(&["claude", "codex", "gemini"]).await;
    let sent = f.send("claude", task("codex", "the secret plan")).await.unwrap().accepted;
    let id = door_workspace::to_native(sent.id);
    for (name, may_read) in [("claude", true), ("codex", true), ("human", true), ("gemini", false)] {
        let me = agent(name);
        let actor = Actor::new(&f.workspace, &me);
        assert_eq!(receipt(actor, &id).await.is_ok(), may_read, "{name}");
        let request = Search { query: "secret".to_owned(), limit: 10, ..Search::default() };
        let found = search(actor, request, |_| {}).await.unwrap();
        assert_eq!(found.messages.len(), usize::from(may_read), "{name}");
    }
}

#[tokio::test]
async fn search_continues_where_it_stopped() {
    let f = Fixture::new(&["claude", "codex"]).await;
    for number in 0..5 {
        f.send("claude", task("codex", &format!("needle {number}"))).await.unwrap();
    }
    let me = agent("codex");
    let (mut bodies, mut before) = (Vec::new(), None);
    loop {
        let request = Search { query: "needle".to_owned(), before, limit: 2 };
        let found = search(Actor::new(&f.workspace, &me), request, |_| {}).await.unwrap();
        bodies.extend(found.messages.into_iter().map(|(stored, _)| stored.message.body));
        before = found.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(bodies, ["needle 4", "needle 3", "needle 2", "needle 1", "needle 0"]);
}

#[test]
fn fields_of_actions_are_named_once() {
    for action in ACTIONS {
        let names: std::collections::BTreeSet<&str> = action.fields.iter().map(|field| field.name).collect();
        assert_eq!(names.len(), action.fields.len(), "{}", action.name);
        assert!(action.verb.is_ok() || action.tool.is_ok(), "{} is on no face", action.name);
    }
}
