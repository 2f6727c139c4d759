//! Connections on event loops of their own.

use super::rig::{Rig, call, initialize};
use crate::{EventLoops, HttpConfig};

const CALLS: u32 = 100;

#[tokio::test]
async fn session_calls_begin_in_order() {
    let loops = EventLoops::start(4).unwrap();
    let rig = Rig::with(HttpConfig { loops: loops.handles(), ..HttpConfig::default() }).await;
    let (mut stream, endpoint) = rig.sse("", &[]).await;
    let post = format!("POST {endpoint}");
    assert_eq!(rig.ask(&post, &[], &initialize("2024-11-05")).await.status, 202);
    // Each comes by a connection of its own, which is another loop's than the one before.
    for id in 1..=CALLS {
        assert_eq!(rig.ask(&post, &[], &call(id, &format!("said {id}."))).await.status, 202);
    }
    let heard = stream.hear_until(&format!("said {CALLS}.")).await;
    let places: Vec<_> = (1..=CALLS).map(|id| heard.find(&format!("said {id}."))).collect();
    assert!(places.is_sorted() && places[0].is_some(), "{places:?}");
    rig.shutdown.cancel();
    rig.served.await.unwrap().unwrap();
    loops.end().await;
}

#[tokio::test]
async fn any_connection_serves_a_session() {
    let loops = EventLoops::start(4).unwrap();
    let rig = Rig::with(HttpConfig { loops: loops.handles(), ..HttpConfig::default() }).await;
    let session = rig.session(&[]).await;
    for number in 0..8 {
        let tool = format!("echo-{number}");
        assert_eq!(rig.call(&session, &tool, &[]).await.said(), tool);
    }
    let waiting = rig
        .connect(rig.request("POST /mcp", &[&format!("Mcp-Session-Id: {session}")], &call(9, "wait")))
        .await;
    rig.record.waiting.notified().await;
    // The end of the loops ends what is still at work there.
    drop(loops);
    drop(waiting);
    rig.handlers_left(0).await;
}
