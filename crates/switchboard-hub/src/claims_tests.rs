use std::collections::BTreeSet;

use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::test_hub::{TestHub, agent_id, name, seconds};
use crate::{Draft, Hub};

fn task(text: &str) -> TaskName {
    text.parse().expect("a task")
}

async fn claim(hub: &Hub, name: &str, agent: &str) -> Result<TaskClaim, HubError> {
    hub.claims().claim(task(name), agent_id(agent), CLAIM_LEASE, None).await
}

fn is_stale<T>(result: &Result<T, HubError>) -> bool {
    matches!(result, Err(HubError::StaleClaim { .. }))
}

#[tokio::test]
async fn concurrent_claims_have_one_winner() {
    let hub = TestHub::with(&[]).await;
    // Like two processes: each has its own writer on the same database.
    let hubs = [hub.hub.clone(), hub.open_another().await];
    for round in 0..1000 {
        let mut asking = JoinSet::new();
        for number in 0..64 {
            let hub = hubs[number % 2].clone();
            asking
                .spawn(async move { claim(&hub, &format!("task {round}"), &format!("agent{number}")).await });
        }
        let (mut winners, mut named) = (Vec::new(), BTreeSet::new());
        while let Some(answer) = asking.join_next().await {
            match answer.expect("asked") {
                Ok(won) => winners.push(won),
                Err(HubError::ClaimHeld { holder, own: None, .. }) => {
                    named.insert(holder.to_string());
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        assert_eq!(winners[0].fence, 1);
        assert_eq!(named, BTreeSet::from([winners[0].holder.to_string()]), "round {round}");
    }
}

#[tokio::test]
async fn expired_holder_is_refused_everywhere() {
    let hub = TestHub::with(&["a", "b"]).await;
    let first = claim(&hub.hub, "T-1", "a").await.expect("claimed");
    assert_eq!((first.fence, first.until), (1, hub.hub.now() + CLAIM_LEASE));
    let held = claim(&hub.hub, "t-1", "b").await;
    assert!(matches!(held, Err(HubError::ClaimHeld { own: None, .. })), "{held:?}");
    let again = claim(&hub.hub, "T-1", "A").await;
    assert!(matches!(again, Err(HubError::ClaimHeld { own: Some(1), .. })), "{again:?}");

    hub.clock.advance(CLAIM_LEASE);
    assert_eq!(hub.hub.claims().list().await.expect("read"), []);
    // Even before another agent has claimed it.
    assert!(is_stale(&hub.hub.claims().renew(task("T-1"), agent_id("a"), 1, Some(CLAIM_LEASE)).await));
    let second = claim(&hub.hub, "T-1", "b").await.expect("claimed");
    assert_eq!(second.fence, 2);
    let write = |from: &str, fence: i64| {
        let claim = json!({ "claim": { "task": "T-1", "fence": fence } });
        let metadata = claim.as_object().expect("an object").clone();
        Draft { metadata, ..hub.draft(from, "b", "result") }
    };
    let late = hub.hub.submit(write("a", 1)).await;
    let problem = late.as_ref().err().map(ToString::to_string);
    assert_eq!(problem.as_deref(), Some("claim 1 of the task 'T-1' is not in force: b holds it now"));
    for (agent, fence) in [("a", 1), ("a", 2), ("b", 1), ("b", 3)] {
        assert!(is_stale(&hub.hub.submit(write(agent, fence)).await), "{agent} {fence}");
        assert!(is_stale(&hub.hub.claims().check(task("T-1"), agent_id(agent), fence).await));
        assert!(is_stale(
            &hub.hub.claims().renew(task("T-1"), agent_id(agent), fence, Some(CLAIM_LEASE)).await
        ));
        assert!(is_stale(&hub.hub.claims().release(task("T-1"), agent_id(agent), fence).await));
    }
    let accepted = write("b", 2);
    hub.hub.submit(accepted.clone()).await.expect("accepted");
    hub.hub.claims().release(task("T-1"), agent_id("b"), 2).await.expect("released");
    // A duplicate of an accepted message stays accepted.
    assert!(hub.hub.submit(accepted).await.expect("accepted").duplicate);
    assert!(is_stale(&hub.hub.submit(write("b", 2)).await));
    assert_eq!(claim(&hub.hub, "T-1", "a").await.expect("claimed").fence, 3);
}

#[tokio::test]
async fn lease_longer_than_a_day_is_refused() {
    let hub = TestHub::with(&["a"]).await;
    let days = SignedDuration::from_hours(99 * 24);
    let refused = hub.hub.claims().claim(task("T"), agent_id("a"), days, None).await.expect_err("refused");
    let words = "a lease of 2376h is too long: the limit for a claim or reservation is 24 h";
    assert_eq!(refused.to_string(), words);
    assert_eq!(hub.hub.claims().list().await.expect("read"), []);
    claim(&hub.hub, "T", "a").await.expect("claimed");
    let renewed = hub.hub.claims().renew(task("T"), agent_id("a"), 1, Some(days)).await;
    assert!(matches!(renewed, Err(HubError::LeaseTooLong { lease }) if lease == days), "{renewed:?}");
}

#[tokio::test]
async fn claim_renewed_in_time_stays_in_force() {
    let hub = TestHub::with(&["a", "b"]).await;
    claim(&hub.hub, "T", "a").await.expect("claimed");
    for _ in 0..5 {
        hub.clock.advance(seconds(500));
        let renewed =
            hub.hub.claims().renew(task("T"), agent_id("a"), 1, Some(CLAIM_LEASE)).await.expect("renewed");
        assert_eq!(renewed.until, hub.hub.now() + CLAIM_LEASE);
        assert!(claim(&hub.hub, "T", "b").await.is_err());
    }
    assert_eq!(hub.hub.claims().list().await.expect("read").len(), 1);
    let day =
        hub.hub.claims().renew(task("T"), agent_id("a"), 1, Some(MAX_LEASE_DURATION)).await.expect("renewed");
    assert_eq!(day.until, hub.hub.now() + MAX_LEASE_DURATION);
    // By default for as long as it was last leased.
    hub.clock.advance(seconds(3600));
    let again = hub.hub.claims().renew(task("T"), agent_id("a"), 1, None).await.expect("renewed");
    assert_eq!(again.until, hub.hub.now() + MAX_LEASE_DURATION);
    let nobody = hub.hub.claims().release(task("T-2"), agent_id("a"), 1).await.expect_err("refused");
    let words = "claim 1 of the task 'T-2' is not in force: no agent of this hub has claimed it";
    assert_eq!(nobody.to_string(), words);
}

#[tokio::test]
async fn clock_set_back_ends_claim() {
    let hub = TestHub::with(&["a", "b"]).await;
    hub.clock.advance(seconds(10 * 365 * 86_400));
    claim(&hub.hub, "T", "a").await.expect("claimed");
    hub.clock.advance(seconds(-10 * 365 * 86_400));
    assert_eq!(hub.hub.claims().list().await.expect("read"), []);
    assert_eq!(claim(&hub.hub, "T", "b").await.expect("claimed").fence, 2);
}

#[tokio::test]
async fn claim_survives_rename_and_restart() {
    let hub = TestHub::with(&["old"]).await;
    claim(&hub.hub, "T", "old").await.expect("claimed");
    let (folder, clock) = hub.close().await;
    let hub = crate::test_hub::open(folder.path(), &clock).await;
    hub.agents().rename(name("old"), name("new")).await.expect("renamed");
    for own in ["old", "new"] {
        hub.claims().renew(task("T"), agent_id(own), 1, Some(CLAIM_LEASE)).await.expect("renewed");
    }
    let activity: Vec<_> = hub.agents().activity(0, 0, 100).await.expect("read");
    let activity: Vec<_> = activity.iter().map(|one| (one.what.as_str(), one.thing.as_str())).collect();
    assert_eq!(activity, [("claimed", "T"), ("renewed", "T"), ("renewed", "T")]);
}

#[tokio::test]
async fn malformed_claim_metadata_is_refused() {
    let hub = TestHub::with(&["a", "b"]).await;
    for (claim, is_fine) in [
        (json!({ "task": "T" }), false),
        (json!({ "task": "T", "fence": "1" }), false),
        (json!({ "task": "", "fence": 1 }), false),
        (json!("mine"), true),
        (json!({ "amount": 3 }), true),
    ] {
        let metadata = json!({ "claim": claim }).as_object().expect("an object").clone();
        let answer = hub.hub.submit(Draft { metadata, ..hub.draft("a", "b", "x") }).await;
        assert_eq!(answer.is_ok(), is_fine, "{claim}");
        assert!(is_fine || matches!(answer, Err(HubError::BadClaim)), "{claim}");
    }
}

/// Plays the process with the link, with a server that grants or refuses.
fn fake_link(hub: &Hub, held: bool) -> tokio::task::JoinHandle<()> {
    let hub = hub.clone();
    tokio::spawn(async move {
        let mut changes = hub.changes();
        loop {
            for (id, ask) in hub.claims().requests().await.expect("read") {
                let answer = if held {
                    ClaimAnswer::Held { holder: "far@office".into(), until: ask.until }
                } else {
                    ClaimAnswer::Done { fence: ask.fence + 10 * i64::from(ask.act == ClaimAction::Claim) }
                };
                assert!(hub.claims().answer(id, answer).await.expect("answered"));
            }
            changes.next().await;
        }
    })
}

#[tokio::test]
async fn global_claim_follows_answer_of_link() {
    let hub = TestHub::with(&["a", "b"]).await;
    let far = fake_link(&hub.open_another().await, true);
    let lease = CLAIM_LEASE;
    let lost =
        hub.hub.claims().claim_globally(task("T"), agent_id("a"), lease, None).await.expect_err("held");
    assert!(lost.to_string().starts_with("the task 'T' is claimed by far@office until"), "{lost}");
    assert_eq!(hub.hub.claims().list().await.expect("read"), []);
    far.abort();

    let near = fake_link(&hub.open_another().await, false);
    let won = hub
        .hub
        .claims()
        .claim_globally(task("T"), agent_id("a"), lease, Some("x".into()))
        .await
        .expect("won");
    assert_eq!((won.fence, won.note.as_deref()), (11, Some("x")));
    assert_eq!(hub.hub.claims().list().await.expect("read"), [won]);
    // It is one claim, and all actions on it go through the link.
    assert!(matches!(claim(&hub.hub, "T", "b").await, Err(HubError::ClaimHeld { .. })));
    hub.clock.advance(seconds(60));
    let renewed = hub.hub.claims().renew(task("T"), agent_id("a"), 11, Some(lease)).await.expect("renewed");
    assert_eq!(renewed.until, hub.hub.now() + lease);
    assert!(is_stale(&hub.hub.claims().renew(task("T"), agent_id("a"), 1, Some(lease)).await));
    hub.hub.claims().release(task("T"), agent_id("a"), 11).await.expect("released");
    assert_eq!(claim(&hub.hub, "T", "b").await.expect("claimed").fence, 12);
    near.abort();
}

#[tokio::test]
async fn link_undoes_late_or_conflicting_claim() {
    let hub = TestHub::with(&["a", "b"]).await;
    let asking = {
        let hub = hub.hub.clone();
        tokio::spawn(
            async move { hub.claims().claim_globally(task("T"), agent_id("a"), CLAIM_LEASE, None).await },
        )
    };
    let mut changes = hub.hub.changes();
    let id = loop {
        if let Some((id, _)) = hub.hub.claims().requests().await.expect("read").first() {
            break *id;
        }
        changes.next().await;
    };
    claim(&hub.hub, "T", "b").await.expect("claimed here, while the link was at work");
    assert!(!hub.hub.claims().answer(id, ClaimAnswer::Done { fence: 5 }).await.expect("answered"));
    let lost = asking.await.expect("asked");
    assert!(
        matches!(lost, Err(HubError::ClaimHeld { ref holder, .. }) if *holder == agent_id("b")),
        "{lost:?}"
    );
    assert!(
        !hub.hub.claims().answer(id, ClaimAnswer::Done { fence: 5 }).await.expect("answered"),
        "nobody waits"
    );
}
