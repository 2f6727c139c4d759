use switchboard_core::DeliveryState;

use super::*;
use crate::channels::Post;
use crate::test_channels::{TestChannels, agent, name, with_timeout, write_carelessly};

/// Replaces the folder of all channels with a plain file, below which no post can be written.
#[expect(clippy::disallowed_methods, reason = "stands for a disk that cannot be written")]
fn break_folder(test: &TestChannels) {
    if test.path("channels").exists() {
        std::fs::rename(test.path("channels"), test.path("aside")).unwrap();
    }
    write_carelessly(&test.path("channels"), b"");
}

#[expect(clippy::disallowed_methods, reason = "stands for a disk that can be written again")]
fn mend_folder(test: &TestChannels) {
    std::fs::remove_file(test.path("channels")).unwrap();
    if test.path("aside").exists() {
        std::fs::rename(test.path("aside"), test.path("channels")).unwrap();
    }
}

async fn post(test: &TestChannels, to: &str) -> MessageId {
    let post = Post { to: to.into(), ..Post::new(agent("claude"), name("general"), "late") };
    match test.channels.post(post).await.unwrap_err() {
        ChannelError::NotWritten { id, .. } => id,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn unwritten_post_is_delivered_with_its_file() {
    let test = TestChannels::new(&[]).await;
    test.channels.join(&agent("codex"), &name("general")).await.unwrap();
    break_folder(&test);
    let id = post(&test, "codex").await;
    let [delivery] = &test.deliveries(id).await[..] else { panic!("one reader") };
    assert!(matches!(delivery.state, DeliveryState::Failed { .. }), "{delivery:?}");
    mend_folder(&test);
    test.clock.advance(jiff::SignedDuration::from_mins(10));
    let outbound = test.outbound().await;
    let is_delivered = async {
        let mut changes = test.channels.hub().changes();
        while test.deliveries(id).await[0].state != DeliveryState::Delivered {
            changes.next().await;
        }
    };
    with_timeout(async {
        tokio::select! { () = crate::delivery::run_deliveries(&test.channels, outbound) => {}, () = is_delivered => {} }
    })
    .await;
    assert_eq!(test.texts().await, ["late"]);
    assert_eq!(test.channels.scan().await.unwrap().ingested, 0);
}

#[tokio::test]
async fn unwritten_post_without_reader_is_noted() {
    let test = TestChannels::new(&[]).await;
    break_folder(&test);
    let id = post(&test, "all").await;
    assert_eq!(test.deliveries(id).await, []);
    assert!(test.channels.write_postponed().await.is_err());
    mend_folder(&test);
    assert_eq!(test.channels.write_postponed().await.unwrap(), 1);
    assert_eq!(test.channels.write_postponed().await.unwrap(), 0);
    assert_eq!(test.texts().await, ["late"]);
}

#[tokio::test]
async fn post_in_time_is_delivered_at_once() {
    let test = TestChannels::new(&[]).await;
    test.channels.join(&agent("codex"), &name("general")).await.unwrap();
    let post = Post { to: "codex".into(), ..Post::new(agent("claude"), name("general"), "now") };
    let posted = test.channels.post(post).await.unwrap();
    let states = |list: &[switchboard_core::Delivery]| list.iter().map(|one| one.state).collect::<Vec<_>>();
    assert_eq!(states(&posted.accepted.deliveries), [DeliveryState::Delivered]);
    assert_eq!(states(&test.deliveries(posted.accepted.id).await), [DeliveryState::Delivered]);
}

#[tokio::test]
async fn killed_poster_leaves_one_file() {
    let test = TestChannels::new(&[]).await;
    test.channels.join(&agent("codex"), &name("general")).await.unwrap();
    let sent = test.post("claude", "codex", "whole").await;
    let stored = test.stored(&sent.id).await;
    // Another process finds the file before its name is recorded.
    let other = test.elsewhere(|_| ()).await;
    let mut draft =
        crate::translate::to_own_draft(sent.clone(), &name("general"), stored.message.id, None).unwrap();
    draft.to = agent("codex").into();
    draft.allow_unregistered = true;
    let (accepted, leased) = other.hub().submit_leased(draft).await.unwrap();
    drop(leased);
    let copy = other.hub().journal().message(accepted.id).await.unwrap().unwrap();
    other.write_file(&copy.message, copy.seq, &name("general")).await.unwrap();
    assert_eq!(test.texts().await, ["whole"]);
}
