//! Three servers, of which one is killed during a burst.

use async_nats::jetstream;
use serde_json::json;
use test_support::nats::{NatsServer, Release};
use test_support::tools;

use super::hub::{
    LONG, Linked, assert_in_order, in_stream, wait_for_all, wait_for_growth, wait_for_receipts, write,
    write_burst,
};
use super::runtime;

/// Messages of a burst, more than sockets and queues hold.
const BURST: usize = 600;

#[test]
fn crash_killed_leader_keeps_order_of_burst() {
    let test = "crash_killed_leader_keeps_order_of_burst";
    let Some(mut servers) = cluster(test) else { return };
    let urls = servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(",");
    let (lab, office) = hubs(&urls, &urls);
    runtime().block_on(async {
        let leader = leader(&servers[0].url()).await;
        kill_in_burst(&mut servers, leader, lab, office).await;
    });
}

/// The hub finds the other servers, although its settings name only the killed one.
#[test]
fn crash_killed_own_server_keeps_order_of_burst() {
    let test = "crash_killed_own_server_keeps_order_of_burst";
    let Some(mut servers) = cluster(test) else { return };
    let urls = servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(",");
    let (lab, office) = hubs(&servers[1].url(), &urls);
    runtime().block_on(kill_in_burst(&mut servers, 1, lab, office));
}

fn cluster(test: &str) -> Option<[NatsServer; 3]> {
    NatsServer::cluster(Release::Newest).map_err(|reason| tools::skip(test, &reason)).ok()
}

fn hubs(lab: &str, office: &str) -> (Linked, Linked) {
    let lab = Linked::start("lab", lab, &["codex"], json!({"replicas": 3}));
    let office = Linked::start("office", office, &["qc-1"], json!({"replicas": 3}));
    lab.wait_for("qc-1@office");
    (lab, office)
}

/// Kills a server while lab publishes a burst: each message arrives once and in order.
async fn kill_in_burst(servers: &mut [NatsServer; 3], killed: usize, mut lab: Linked, office: Linked) {
    let (here, there) = (lab.hub().await, office.hub().await);
    lab.serve.take().unwrap().kill();
    let mut ids = write_burst(&here, "codex", "qc-1", 0..BURST).await;
    lab.serve = Some(lab.sandbox.serve());
    let other = servers[(killed + 1) % 3].url();
    wait_for_growth(&other, 0).await;
    servers[killed].kill();
    ids.extend(write(&here, "codex", "qc-1", BURST..2 * BURST).await);
    wait_for_all(&there, 2 * BURST).await;
    assert_in_order(&there, 0..2 * BURST).await;
    wait_for_receipts(&here, &ids).await;
    assert_eq!(in_stream(&other, "switchboard.lab.hub.office.message").await, 2 * BURST);
}

/// Returns the number of the server that leads the stream.
async fn leader(url: &str) -> usize {
    let context = jetstream::new(async_nats::connect(url).await.unwrap());
    let named = async {
        loop {
            if let Ok(stream) = context.get_stream("switchboard_messages").await
                && let Some(leader) = stream.cached_info().cluster.as_ref().and_then(|c| c.leader.clone())
            {
                return leader;
            }
            tokio::task::yield_now().await;
        }
    };
    let leader = tokio::time::timeout(LONG, named).await.expect("a leader");
    leader.strip_prefix('n').unwrap().parse().unwrap()
}
