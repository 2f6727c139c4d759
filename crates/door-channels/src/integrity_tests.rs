use serde_json::Value;
use switchboard_hub::RemoteAgent;

use super::*;
use crate::channels::Post;
use crate::test_channels::{TestChannels, agent, file, name, write_carelessly};

/// Rewrites a message file of `general` in place.
fn edit(test: &TestChannels, id: &str, change: impl FnOnce(&mut Value)) {
    let path = test.path(&format!("channels/general/{id}.json"));
    let mut message: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut message);
    write_carelessly(&path, message.to_string());
}

#[tokio::test]
async fn untouched_files_are_intact() {
    let test = TestChannels::new(&["claude"]).await;
    let mut rich = file("msg-1", "claude-1", "all", "dropped");
    rich["content"] =
        serde_json::json!({ "text": "dropped", "code": "x", "artifacts": [{ "path": "a" }], "lang": "rs" });
    rich["priority"] = "high".into();
    rich["id"] = "its-own-idea".into();
    write_carelessly(&test.path("channels/general/msg-1.json"), rich.to_string());
    test.drop_file(&file("msg-2", "qc-1", "codex", "to one"));
    test.channels.scan().await.unwrap();
    let post = Post {
        code: Some("fn f() {}".into()),
        artifacts: vec!["src".into()],
        ..Post::new(agent("codex"), name("general"), "posted")
    };
    test.channels.post(post).await.unwrap();
    assert_eq!(test.channels.find_tampering().await.unwrap(), []);
}

#[tokio::test]
async fn edit_and_deletion_are_found() {
    let test = TestChannels::new(&[]).await;
    let edited = test.post("codex", "all", "pay 10").await.id;
    let deleted = test.post("codex", "all", "a promise").await.id;
    let forged = test.post("codex", "qc-1", "yes").await.id;
    test.post("codex", "all", "untouched").await;
    edit(&test, &edited, |message| message["content"]["text"] = "pay 10000".into());
    edit(&test, &forged, |message| message["from"] = "supervisor".into());
    std::fs::remove_file(test.path(&format!("channels/general/{deleted}.json"))).unwrap();
    let reported: HashSet<String> =
        test.channels.find_tampering().await.unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        HashSet::from([
            format!("channels/general/{edited}.json was changed after it was posted"),
            format!("channels/general/{forged}.json was changed after it was posted"),
            format!("channels/general/{deleted}.json was deleted after it was posted"),
        ])
    );
    assert_eq!(test.stored(&edited).await.message.body, "pay 10");
    assert_eq!(test.stored(&deleted).await.message.body, "a promise");
    assert!(
        std::fs::read_to_string(test.path(&format!("channels/general/{edited}.json")))
            .unwrap()
            .contains("10000")
    );
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0, "an edited file is no new message");
}

#[tokio::test]
async fn tampering_is_reported_once() {
    let test = TestChannels::new(&[]).await;
    let edited = test.post("codex", "all", "one").await.id;
    let deleted = test.post("codex", "all", "two").await.id;
    test.channels.scan().await.unwrap();
    let reported =
        || test.channels.reported().lock().iter().map(|(_, id)| id.clone()).collect::<HashSet<_>>();
    let channels = test.channels.tree().channels().unwrap().path().to_owned();
    let path = test.path(&format!("channels/general/{edited}.json"));
    test.channels.check_touched(&channels, vec![path.clone()]).await.unwrap();
    assert_eq!(reported(), HashSet::new(), "touched is not changed");
    edit(&test, &edited, |message| message["content"]["text"] = "else".into());
    test.channels.check_touched(&channels, vec![path.clone()]).await.unwrap();
    assert_eq!(reported(), HashSet::from([edited.clone()]));
    std::fs::remove_file(test.path(&format!("channels/general/{deleted}.json"))).unwrap();
    test.channels.scan().await.unwrap();
    assert_eq!(reported(), HashSet::from([edited.clone(), deleted.clone()]));
    edit(&test, &edited, |message| message["content"]["text"] = "one".into());
    test.channels.check_touched(&channels, vec![path]).await.unwrap();
    assert_eq!(reported(), HashSet::from([deleted]));
}

#[tokio::test]
async fn qualified_name_in_journal_is_no_edit() {
    let test = TestChannels::new(&[]).await;
    let far = RemoteAgent { name: name("qc-1"), role: None, team: None, channels: vec![] };
    test.channels.hub().relay().put_remote_agents(name("office"), vec![far]).await.unwrap();
    let posted = test.post("codex", "qc-1", "for another hub").await;
    assert_eq!(test.stored(&posted.id).await.message.to.to_string(), "qc-1@office");
    assert_eq!(test.channels.find_tampering().await.unwrap(), []);
    edit(&test, &posted.id, |message| message["to"] = "qc-2".into());
    assert_eq!(test.channels.find_tampering().await.unwrap().len(), 1);
}

#[tokio::test]
async fn deleted_channel_is_reported_once() {
    let test = TestChannels::new(&[]).await;
    test.post("codex", "all", "one").await;
    let newest = test.post("codex", "all", "two").await.id;
    let id = test.stored(&newest).await.message.id;
    std::fs::remove_dir_all(test.path("channels/general")).unwrap();
    let reported = test.channels.find_tampering().await.unwrap();
    assert_eq!(reported, [Tampering::Channel { channel: name("general"), messages: 2, id }]);
    assert_eq!(
        reported[0].to_string(),
        "channels/general was deleted, and 2 of its messages now have no file"
    );
}

#[tokio::test]
async fn notices_need_no_file() {
    let test = TestChannels::new(&[]).await;
    let question = test.post("qc-1", "codex", "what is it?").await;
    loop {
        let reply = Post {
            to: "qc-1".into(),
            in_reply_to: Some(question.id.clone()),
            ..Post::new(agent("codex"), name("general"), "once more")
        };
        if test.channels.post(reply).await.unwrap().accepted.stopped.is_some() {
            break;
        }
    }
    let scopes = test.channels.hub().native_ids().scopes(Door::Channels).await.unwrap();
    assert!(scopes.contains(&switchboard_hub::HUB_NAME.to_owned()), "somebody was told: {scopes:?}");
    assert_eq!(test.channels.find_tampering().await.unwrap(), []);
}
