use futures_util::FutureExt as _;
use serde_json::json;

use super::*;
use crate::child::test_child::TestHost;

#[tokio::test]
async fn clients_take_turns_and_keep_their_own_order() {
    let turns = FairQueue::new(1, 100);
    let (busy, calm) = (TestHost::new("busy", json!({})), TestHost::new("calm", json!({})));
    let (busy, calm) = (busy.caller(), calm.caller());
    let first = turns.take(&busy).await.expect("it is free");
    let order = Mutex::new(Vec::new());
    let take = |name: &'static str, caller| {
        let (turns, order) = (&turns, &order);
        async move {
            let _turn = turns.take(caller).await.expect("there is room");
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
async fn who_leaves_gives_up_the_place_and_loses_no_turn() {
    let turns = FairQueue::new(1, 2);
    let caller = Caller::default();
    let first = turns.take(&caller).await.expect("it is free");
    let mut leaves = Box::pin(turns.take(&caller));
    let mut stays = Box::pin(turns.take(&caller));
    assert!((&mut leaves).now_or_never().is_none());
    assert!((&mut stays).now_or_never().is_none());
    assert!(matches!(turns.take(&caller).await, Err(QueueFull(2))));
    // It was granted the turn, and leaves without having heard of it.
    drop(first);
    drop(leaves);
    let turn = stays.now_or_never().expect("it is its turn").expect("there was room");
    assert_eq!(turns.waiting(), 0);
    drop(turn);
    assert_eq!(turns.state.lock().free, 1);
}

#[tokio::test]
async fn those_who_left_do_not_pile_up() {
    let turns = FairQueue::new(1, 10);
    let caller = Caller::default();
    let _first = turns.take(&caller).await.expect("it is free");
    for _ in 0..1000 {
        assert!(turns.take(&caller).now_or_never().is_none());
    }
    assert!(turns.state.lock().lines[0].callers.len() < 10);
}
