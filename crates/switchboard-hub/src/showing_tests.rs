use std::time::Duration;

use jiff::SignedDuration;
use switchboard_core::{DeliveryState, MessageId};

use super::*;
use crate::test_hub::{TestHub, agent_id};
use crate::{DisplayLease, Hub, Part};

async fn hold(hub: &Hub, id: MessageId, how: DisplayMode) -> DisplayLease {
    hub.lease_display(agent_id("codex"), vec![id], how).await.expect("asked")
}

async fn with_mail() -> (TestHub, MessageId) {
    let test = TestHub::with(&["claude", "codex"]).await;
    let id = test.send("claude", "codex", "hello").await.id;
    test.deliver_all().await;
    (test, id)
}

#[tokio::test]
async fn x10_of_two_adapters_one_shows_a_message() {
    let (test, id) = with_mail().await;
    let second_process = test.another().await;
    let first = hold(&test.hub, id, DisplayMode::Push).await;
    assert!(first.contains(id));
    for how in [DisplayMode::Pull, DisplayMode::Push] {
        assert!(hold(&test.hub, id, how).await.is_empty());
        assert!(hold(&second_process, id, how).await.is_empty());
    }
    let seen = first.finish(vec![id], vec![]).await.expect("noted");
    assert_eq!(seen.len(), 1);
    assert_eq!(test.state(id).await, DeliveryState::Seen);
    assert!(hold(&second_process, id, DisplayMode::Pull).await.is_empty());
}

#[tokio::test]
async fn what_is_not_shown_is_let_go_also_without_a_word() {
    let (test, id) = with_mail().await;
    let first = hold(&test.hub, id, DisplayMode::Pull).await;
    assert!(first.finish(vec![], vec![]).await.expect("noted").is_empty());
    drop(hold(&test.hub, id, DisplayMode::Pull).await);
    // The writer does one job after the other, so what was dropped is done by now.
    assert!(hold(&test.hub, id, DisplayMode::Push).await.contains(id));
    assert_eq!(test.state(id).await, DeliveryState::Delivered);
}

#[tokio::test]
async fn cancelled_hold_is_let_go() {
    let (test, id) = with_mail().await;
    for polls in 0..8 {
        let mut holding = Box::pin(test.hub.lease_display(agent_id("codex"), vec![id], DisplayMode::Pull));
        for _ in 0..polls {
            tokio::select! {
                biased;
                // Done in so few polls, it is dropped here.
                _ = &mut holding => break,
                () = tokio::task::yield_now() => {}
            }
        }
        drop(holding);
        let next = hold(&test.hub, id, DisplayMode::Pull).await;
        assert!(next.contains(id), "after {polls} polls");
    }
}

#[tokio::test]
async fn reader_who_is_gone_has_seen_nothing() {
    let (test, id) = with_mail().await;
    let first = hold(&test.hub, id, DisplayMode::Pull).await;
    assert!(first.finish_if(vec![id], vec![], || false).await.expect("noted").is_empty());
    assert!(test.hub.mark_seen_if(agent_id("codex"), vec![id], || false).await.expect("noted").is_empty());
    assert_eq!(test.state(id).await, DeliveryState::Delivered);
    // The next reader has it at once.
    let next = hold(&test.hub, id, DisplayMode::Push).await;
    assert_eq!(next.finish_if(vec![id], vec![], || true).await.expect("noted").len(), 1);
    assert_eq!(test.state(id).await, DeliveryState::Seen);
}

#[tokio::test]
async fn a_hold_ends_by_itself_and_a_dead_process_has_none() {
    let (test, id) = with_mail().await;
    let lost = hold(&test.hub, id, DisplayMode::Pull).await;
    test.clock.advance(SignedDuration::from_secs(61));
    let taken_over = hold(&test.hub, id, DisplayMode::Pull).await;
    assert!(taken_over.contains(id));
    // The late one takes nothing away from the one that has it now.
    drop(lost);
    assert!(hold(&test.hub, id, DisplayMode::Pull).await.is_empty());
    std::mem::forget(taken_over);
    let host = switchboard_sys::owner::this_host();
    let gone = format!("UPDATE deliveries SET owner = '{host}/1234567890/1 0'");
    test.sql().execute(&gone, []).expect("written");
    assert!(hold(&test.hub, id, DisplayMode::Push).await.contains(id));
}

#[tokio::test]
async fn who_was_told_is_not_told_again_for_a_while_but_may_ask() {
    let (test, id) = with_mail().await;
    let first = hold(&test.hub, id, DisplayMode::Push).await;
    first.finish(vec![], vec![id]).await.expect("noted");
    assert!(hold(&test.hub, id, DisplayMode::Push).await.is_empty());
    let asked = hold(&test.hub, id, DisplayMode::Pull).await;
    assert!(asked.contains(id));
    asked.finish(vec![], vec![id]).await.expect("noted");
    test.clock.advance(SignedDuration::try_from(Duration::from_mins(11)).expect("fits"));
    assert!(hold(&test.hub, id, DisplayMode::Push).await.contains(id));
    assert_eq!(test.mailbox("codex", Part::Unseen).await, ["hello"]);
}
