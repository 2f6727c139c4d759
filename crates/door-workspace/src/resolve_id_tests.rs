use switchboard_core::MessageId;

use crate::test_workspace::{TestWorkspace, agent, message, outgoing};

/// Creates a workspace in which two mailboxes each have a message with the same id.
async fn with_twins() -> (TestWorkspace, MessageId, MessageId) {
    let workspace = TestWorkspace::new(&["ann", "q", "q2"]).await;
    for mailbox in ["q", "q2"] {
        workspace.put(mailbox, &message("msg_5_zz", "ann", mailbox, "a twin"));
        workspace.workspace.scan_mailbox(&agent(mailbox)).await.unwrap();
    }
    let id = async |name| workspace.workspace.resolve_id_for(&agent(name), "msg_5_zz").await.unwrap();
    let (first, second) = (id("q").await, id("q2").await);
    (workspace, first, second)
}

#[tokio::test]
async fn own_mailbox_has_precedence_for_ids() {
    let (workspace, first, second) = with_twins().await;
    assert_ne!(first, second);
    for (name, id) in [("q", first), ("Q2", second)] {
        let (stored, _) = workspace.workspace.hub().journal().receipt(id).await.unwrap().unwrap();
        assert!(stored.message.to.to_string().eq_ignore_ascii_case(name), "{stored:?}");
    }
    assert_eq!(workspace.workspace.resolve_id("msg_5_zz").await.unwrap(), second, "the newest");
    assert_eq!(workspace.workspace.resolve_id_for(&agent("ann"), "msg_5_zz").await.unwrap(), second);
}

#[tokio::test]
async fn idempotency_key_is_no_id() {
    let workspace = TestWorkspace::new(&["ann", "q"]).await;
    let mut forged = outgoing("ann", "q", "under a word that looks like an id");
    forged.key = Some("msg_5_zz".to_owned());
    workspace.workspace.send(forged).await.unwrap();
    workspace.workspace.resolve_id("msg_5_zz").await.unwrap_err();
    workspace.workspace.resolve_id_for(&agent("q"), "msg_5_zz").await.unwrap_err();
    workspace.put("q", &message("msg_5_zz", "ann", "q", "of that name"));
    workspace.workspace.scan_mailbox(&agent("q")).await.unwrap();
    let id = workspace.workspace.resolve_id("msg_5_zz").await.unwrap();
    assert_eq!(
        workspace.workspace.hub().journal().message(id).await.unwrap().unwrap().message.body,
        "of that name"
    );
}
