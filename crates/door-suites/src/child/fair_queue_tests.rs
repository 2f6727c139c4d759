use futures_util::FutureExt as _;
use serde_json::json;

use super::*;
use crate::child::test_child::TestHost;

#[tokio::test]
async fn clients_alternate_and_retain_their_order() {
    let queue = FairQueue::new(1, 100);
    let (busy, calm) = (TestHost::new("busy", json!({})), TestHost::new("calm", json!({})));
    let (busy, calm) = (busy.caller(), calm.caller());
    let first = queue.acquire(&busy).await.expect("it is free");
    let order = Mutex::new(Vec::new());
    let take = |name: &'static str, caller| {
        let (queue, order) = (&queue, &order);
        async move {
            let _turn = queue.acquire(caller).await.expect("there is room");
            order.lock().push(name);
        }
    };
    let all = futures_util::future::join_all([
        take("busy 1", &busy).boxed_local(),
        take("busy 2", &busy).boxed_local(),
        take("busy 3", &busy).boxed_local(),
        take("calm 1", &calm).boxed_local(),
        take("calm 2", &calm).boxed_local(),
    ]);
    tokio::join!(all, async { drop(first) });
    assert_eq!(*order.lock(), ["busy 1", "calm 1", "busy 2", "calm 2", "busy 3"]);
}

#[tokio::test]
async fn cancelled_waiter_loses_no_slot() {
    let queue = FairQueue::new(1, 2);
    let caller = Caller::default();
    let first = queue.acquire(&caller).await.expect("it is free");
    let mut leaves = Box::pin(queue.acquire(&caller));
    let mut stays = Box::pin(queue.acquire(&caller));
    assert!((&mut leaves).now_or_never().is_none());
    assert!((&mut stays).now_or_never().is_none());
    assert!(matches!(queue.acquire(&caller).await, Err(QueueFull(2))));
    // The slot was granted, and the waiter is dropped before it is polled.
    drop(first);
    drop(leaves);
    let slot = stays.now_or_never().expect("it is its turn").expect("there was room");
    assert_eq!(queue.waiting(), 0);
    drop(slot);
    assert_eq!(queue.state.lock().free, 1);
}

#[tokio::test]
async fn cancelled_waiters_do_not_accumulate() {
    let queue = FairQueue::new(1, 10);
    let caller = Caller::default();
    let _first = queue.acquire(&caller).await.expect("it is free");
    for _ in 0..1000 {
        assert!(queue.acquire(&caller).now_or_never().is_none());
    }
    assert!(queue.state.lock().queues[0].callers.len() < 10);
}
