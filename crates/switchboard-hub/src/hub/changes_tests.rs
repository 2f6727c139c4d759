use crate::test_hub::{TestHub, with_timeout};

#[tokio::test]
async fn submit_wakes_waiters_of_other_hubs() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.open_another().await;
    let mut changes = other.changes();
    changes.signal.mark_unchanged();
    hub.send("a", "b", "hi").await;
    // Not `next`, which would return after a while anyway.
    with_timeout(changes.signal.changed()).await.expect("rung");
    changes.signal.mark_changed();
    with_timeout(changes.next()).await;
}
