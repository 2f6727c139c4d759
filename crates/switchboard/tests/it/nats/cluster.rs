//! Three servers, of which the one that leads is killed in the middle.

use async_nats::jetstream;
use serde_json::json;
use test_support::nats::{NatsServer, Release};
use test_support::tools;

use super::hub::{LONG, Linked, in_stream, wait_for_all, wait_for_receipts, write};
use super::runtime;

#[test]
fn a_cluster_that_loses_its_leader_loses_no_message() {
    let test = "a_cluster_that_loses_its_leader_loses_no_message";
    let mut servers = match NatsServer::cluster(Release::Newest) {
        Ok(servers) => servers,
        Err(reason) => return tools::skip(test, &reason),
    };
    let urls = servers.iter().map(NatsServer::url).collect::<Vec<_>>().join(",");
    let lab = Linked::start("lab", &urls, &["codex"], json!({"replicas": 3}));
    let office = Linked::start("office", &urls, &["qc-1"], json!({"replicas": 3}));
    lab.wait_for("qc-1@office");
    runtime().block_on(async {
        let (here, there) = (lab.hub().await, office.hub().await);
        let mut ids = write(&here, "codex", "qc-1", 0..300).await;
        let leader = leader(&servers[0].url()).await;
        servers[leader].kill();
        ids.extend(write(&here, "codex", "qc-1", 300..900).await);
        let counts = wait_for_all(&there, 900).await;
        assert!(counts.values().all(|count| *count == 1), "{counts:?}");
        wait_for_receipts(&here, &ids).await;
        let other = &servers[(leader + 1) % 3];
        assert_eq!(in_stream(&other.url(), "switchboard.lab.hub.office.message").await, 900);
    });
}

/// The number of the server that leads the stream.
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
