use crate::test_hub::{TestHub, soon};

#[tokio::test]
async fn submit_wakes_waiters_of_other_hubs() {
    let hub = TestHub::with(&["a", "b"]).await;
    let other = hub.another().await;
    let mut changes = other.changes();
    changes.signal.mark_unchanged();
    hub.send("a", "b", "hi").await;
    // Not `next`, which would return after a while anyway.
    soon(changes.signal.changed()).await.expect("rung");
    changes.signal.mark_changed();
    soon(changes.next()).await;
}
