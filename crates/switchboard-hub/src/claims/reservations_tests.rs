use super::*;
use crate::test_hub::{TestHub, agent_id, seconds};

fn tree(name: &str) -> WorkTree {
    WorkTree { repository: "/repo/.git".into(), root: format!("/{name}") }
}

fn patterns(texts: &[&str]) -> Vec<Pattern> {
    texts.iter().map(|text| Pattern::parse(text).expect("a pattern")).collect()
}

fn request(agent: &str, texts: &[&str]) -> ReservationRequest {
    ReservationRequest {
        agent: agent_id(agent),
        tree: tree("repo"),
        patterns: patterns(texts),
        shared: false,
        note: None,
        lease: RESERVATION_LEASE,
    }
}

async fn list_held(hub: &TestHub) -> Vec<(String, String)> {
    let all = hub.hub.claims().reservations().await.expect("read");
    all.into_iter().map(|one| (one.holder.to_string(), one.pattern)).collect()
}

#[tokio::test]
async fn overlapping_reservations_are_refused() {
    for (first, second) in [("src/**", "src/a.rs"), ("src/a.rs", "src/**"), ("SRC/A.RS", "src/*.rs")] {
        let hub = TestHub::with(&["a", "b"]).await;
        hub.hub.claims().reserve(request("a", &[first])).await.expect("reserved");
        let refused =
            hub.hub.claims().reserve(request("b", &["docs/x.md", second])).await.expect_err("refused");
        let text = refused.to_string();
        assert!(text.contains(second) && text.contains(first) && text.contains("by a until"), "{text}");
        assert_eq!(list_held(&hub).await, [("a".to_owned(), first.to_owned())]);
        // The holder may renew it, without a second entry.
        hub.hub.claims().reserve(request("A", &[first, second])).await.expect("reserved");
        assert_eq!(list_held(&hub).await.len(), 2);
        hub.hub.claims().reserve(request("b", &["docs/x.md"])).await.expect("reserved");
    }
}

#[tokio::test]
async fn other_work_tree_conflicts_only_if_shared() {
    for (one, other, is_met) in [(false, false, false), (true, false, true), (false, true, true)] {
        let hub = TestHub::with(&["a", "b"]).await;
        hub.hub
            .claims()
            .reserve(ReservationRequest { shared: one, ..request("a", &["src/**"]) })
            .await
            .expect("reserved");
        let elsewhere =
            ReservationRequest { tree: tree("other"), shared: other, ..request("b", &["src/a.rs"]) };
        assert_eq!(hub.hub.claims().reserve(elsewhere).await.is_err(), is_met, "{one}, {other}");
        let stranger = WorkTree { repository: "/else/.git".into(), root: "/else".into() };
        let strange = ReservationRequest { tree: stranger, shared: true, ..request("b", &["src/a.rs"]) };
        hub.hub.claims().reserve(strange).await.expect("reserved");
    }
}

#[tokio::test]
async fn reservation_ends_by_time_or_release() {
    let hub = TestHub::with(&["a", "b"]).await;
    hub.hub.claims().reserve(request("a", &["src/**", "docs/**"])).await.expect("reserved");
    let gone =
        hub.hub.claims().unreserve(agent_id("b"), tree("repo"), patterns(&["src/**"])).await.expect("asked");
    assert_eq!(gone, 0, "not b's to give up");
    let gone = hub
        .hub
        .claims()
        .unreserve(agent_id("a"), tree("repo"), patterns(&["src/**"]))
        .await
        .expect("given up");
    assert_eq!(gone, 1);
    hub.hub.claims().reserve(request("b", &["src/**"])).await.expect("reserved");
    assert!(hub.hub.claims().reserve(request("b", &["docs/a.md"])).await.is_err());
    hub.clock.advance(RESERVATION_LEASE);
    assert_eq!(list_held(&hub).await, []);
    hub.hub.claims().reserve(request("b", &["docs/a.md"])).await.expect("reserved");
    assert_eq!(
        hub.hub.claims().unreserve(agent_id("b"), tree("repo"), Vec::new()).await.expect("given up"),
        1
    );
    let activity = hub.hub.agents().activity(0, 0, 100).await.expect("read");
    assert_eq!(activity.iter().filter(|one| one.what == "unreserved").count(), 2);
}

#[tokio::test]
async fn clock_set_back_ends_reservation() {
    let hub = TestHub::with(&["a", "b"]).await;
    hub.clock.advance(seconds(86_400));
    hub.hub.claims().reserve(request("a", &["src/**"])).await.expect("reserved");
    hub.clock.advance(seconds(-86_400));
    hub.hub.claims().reserve(request("b", &["src/**"])).await.expect("reserved");
}
