use switchboard_hub::Registration;

use crate::test_workspace::{TestWorkspace, agent, name};

#[tokio::test]
async fn a_snapshot_shows_what_others_did_before_it_and_nothing_after() {
    let t = TestWorkspace::new(&["codex"]).await;
    let other = t.another().await;
    let before = t.workspace.snapshot().await.unwrap();
    other
        .register(Registration { role: Some("reviewer".into()), ..Registration::mailbox(name("claude")) })
        .await
        .unwrap();
    assert!(before.directory.agent(&agent("claude")).is_none());
    assert!(before.recipient("reviewer").is_err());
    let after = t.workspace.snapshot().await.unwrap();
    assert_eq!(after.recipient("reviewer").unwrap(), agent("claude").into());
    other.rename(name("claude"), name("opus")).await.unwrap();
    let renamed = t.workspace.snapshot().await.unwrap();
    assert_eq!(renamed.current_name(Some(&name("claude"))), Some(name("opus")));
    assert_eq!(after.current_name(Some(&name("claude"))), Some(name("claude")));
    other.close().await;
}
