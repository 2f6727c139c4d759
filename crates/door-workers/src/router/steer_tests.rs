use std::time::Duration;

use serde_json::json;
use switchboard_core::DeliveryState;

use crate::config::Config;
use crate::test_router::Rig;

/// Returns the newest message and the outcome of its delivery.
async fn newest(rig: &Rig) -> (String, DeliveryState) {
    let message = rig.hub.journal().newest(1).await.unwrap().items.remove(0).message;
    let settled = rig.hub.deliveries().wait_until_settled(message.id).await.unwrap();
    (message.body, settled.deliveries[0].state)
}

#[tokio::test]
async fn steering_is_journaled_and_published() {
    let rig = Rig::new().await;
    let (mut client, mut other) = (rig.client(), rig.client());
    let job = client.launch(json!({ "agent": "echo", "echo": { "millis": 600_000 } })).await;
    other.request("subscribe", json!({})).await;
    let steer = json!({ "job_id": job, "node_id": 0, "content": "more" });
    assert_eq!(client.rejected("steer", steer.clone()).await, "not_now");
    let injection = client.injected(&job, 0, "slow").await;
    client.next_of("turn_started").await;
    let steered = client.request("steer", steer).await;
    assert_eq!((&*steered.event, &steered.data["injection_id"]), ("steer_ack", &json!(injection)));
    assert_eq!(other.next_of("steer_ack").await.seq, steered.seq);
    assert_eq!(newest(&rig).await, ("more".to_owned(), DeliveryState::Seen));
    client.request("interrupt", json!({ "job_id": job, "node_id": 0 })).await;
    client.next_of("turn_complete").await;
    // It did not start a turn.
    let status = client.request("job_status", json!({ "job_id": job })).await;
    assert_eq!(
        (&status.data["nodes"][0]["turns"], &status.data["nodes"][0]["queued"]),
        (&json!(1), &json!(0))
    );
    rig.close().await;
}

#[tokio::test]
async fn steering_before_kill_is_refused() {
    let mut rig = Rig::open(
        tempfile::TempDir::new().unwrap(),
        Config { steer: Duration::from_millis(20), ..Config::default() },
        Duration::from_millis(300),
    )
    .await;
    let mut client = rig.client();
    let job = client.launch(json!({ "agent": "echo", "echo": { "millis": 600_000 } })).await;
    client.injected(&job, 0, "slow").await;
    client.next_of("turn_started").await;
    rig.stop_deliveries().await;
    let mut client = rig.client_until(<_>::default(), <_>::default());
    let steer = json!({ "job_id": job, "node_id": 0, "content": "more" });
    assert_eq!(client.rejected("steer", steer).await, "not_now");
    let folder = rig.close().await;
    let rig = Rig::open(folder, Config::default(), Duration::from_millis(300)).await;
    let mut client = rig.client();
    assert_eq!(newest(&rig).await, ("more".to_owned(), DeliveryState::Refused));
    let status = client.request("job_status", json!({ "job_id": job })).await;
    assert_eq!(status.data["nodes"][0]["turns"], 1);
    rig.close().await;
}
