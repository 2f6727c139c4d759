use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::{DeliveryState, MessageId};

use super::*;
use crate::test_hub::{TestHub, agent_id};
use crate::{DisplayLease, Hub, Part};

async fn lease(hub: &Hub, id: MessageId, how: DisplayMode) -> DisplayLease {
    hub.mailboxes().lease_display(agent_id("codex"), vec![id], how).await.expect("asked")
}

async fn with_mail() -> (TestHub, MessageId) {
    let test = TestHub::with(&["claude", "codex"]).await;
    let id = test.send("claude", "codex", "hello").await.id;
    test.deliver_all().await;
    (test, id)
}

#[tokio::test]
async fn one_of_two_adapters_displays_message() {
    let (test, id) = with_mail().await;
    let second_process = test.open_another().await;
    let first = lease(&test.hub, id, DisplayMode::Push).await;
    assert!(first.contains(id));
    for how in [DisplayMode::Pull, DisplayMode::Push] {
        assert!(lease(&test.hub, id, how).await.is_empty());
        assert!(lease(&second_process, id, how).await.is_empty());
    }
    let seen = first.finish(vec![id], vec![]).await.expect("noted");
    assert_eq!(seen.len(), 1);
    assert_eq!(test.state(id).await, DeliveryState::Seen);
    assert!(lease(&second_process, id, DisplayMode::Pull).await.is_empty());
}

#[tokio::test]
async fn unshown_message_is_released_on_drop() {
    let (test, id) = with_mail().await;
    let first = lease(&test.hub, id, DisplayMode::Pull).await;
    assert!(first.finish(vec![], vec![]).await.expect("noted").is_empty());
    drop(lease(&test.hub, id, DisplayMode::Pull).await);
    // The writer runs jobs in order, so the release has happened by now.
    assert!(lease(&test.hub, id, DisplayMode::Push).await.contains(id));
    assert_eq!(test.state(id).await, DeliveryState::Delivered);
}

#[tokio::test]
async fn cancelled_lease_is_released() {
    let (test, id) = with_mail().await;
    for polls in 0..8 {
        let mut leasing =
            Box::pin(test.hub.mailboxes().lease_display(agent_id("codex"), vec![id], DisplayMode::Pull));
        for _ in 0..polls {
            tokio::select! {
                biased;
                // It completes within so few polls, and is dropped here.
                _ = &mut leasing => break,
                () = tokio::task::yield_now() => {}
            }
        }
        drop(leasing);
        let next = lease(&test.hub, id, DisplayMode::Pull).await;
        assert!(next.contains(id), "after {polls} polls");
    }
}

#[tokio::test]
async fn disconnected_reader_has_seen_nothing() {
    let (test, id) = with_mail().await;
    let first = lease(&test.hub, id, DisplayMode::Pull).await;
    assert!(first.finish_if(vec![id], vec![], || false).await.expect("noted").is_empty());
    assert!(
        test.hub
            .mailboxes()
            .mark_seen_if(agent_id("codex"), vec![id], || false)
            .await
            .expect("noted")
            .is_empty()
    );
    assert_eq!(test.state(id).await, DeliveryState::Delivered);
    // The next reader gets it at once.
    let next = lease(&test.hub, id, DisplayMode::Push).await;
    assert_eq!(next.finish_if(vec![id], vec![], || true).await.expect("noted").len(), 1);
    assert_eq!(test.state(id).await, DeliveryState::Seen);
}

#[tokio::test]
async fn lease_expires_and_ends_with_process() {
    let (test, id) = with_mail().await;
    let lost = lease(&test.hub, id, DisplayMode::Pull).await;
    test.clock.advance(SignedDuration::from_secs(61));
    let taken_over = lease(&test.hub, id, DisplayMode::Pull).await;
    assert!(taken_over.contains(id));
    // The late drop does not end the lease of the current holder.
    drop(lost);
    assert!(lease(&test.hub, id, DisplayMode::Pull).await.is_empty());
    std::mem::forget(taken_over);
    let host = switchboard_sys::process_identity::this_host();
    let gone = format!("UPDATE deliveries SET owner = '{host}/1234567890/1 0'");
    test.sql().execute(&gone, []).expect("written");
    assert!(lease(&test.hub, id, DisplayMode::Push).await.contains(id));
}

#[tokio::test]
async fn announced_message_is_not_announced_again() {
    let (test, id) = with_mail().await;
    let first = lease(&test.hub, id, DisplayMode::Push).await;
    first.finish(vec![], vec![id]).await.expect("noted");
    assert!(lease(&test.hub, id, DisplayMode::Push).await.is_empty());
    let leased = lease(&test.hub, id, DisplayMode::Pull).await;
    assert!(leased.contains(id));
    leased.finish(vec![], vec![id]).await.expect("noted");
    test.clock.advance(SignedDuration::try_from(Duration::from_mins(11)).expect("fits"));
    assert!(lease(&test.hub, id, DisplayMode::Push).await.contains(id));
    assert_eq!(test.mailbox("codex", Part::Unseen).await, ["hello"]);
}
