use switchboard_core::POSTED_IN;
use switchboard_hub::{Draft, RelayedMessage};
use tokio_util::sync::CancellationToken;

use crate::channels::{Channels, Post};
use crate::reading::Transcript;
use crate::run::run_channels;
use crate::test_channels::{TestChannels, agent, name, post_from_lab, with_timeout};

/// Builds a post at `lab` to an agent of another hub, as the link delivers it.
async fn relay_post(test: &TestChannels, there: &Channels, to: &str, text: &str) -> RelayedMessage {
    let post = Post { to: to.into(), ..Post::new(agent("codex"), name("general"), text) };
    let id = there.post(post).await.unwrap().accepted.id;
    let RelayedMessage { draft, thread, via } =
        post_from_lab(there.hub().journal().message(id).await.unwrap().unwrap().message);
    assert_ne!(test.channels.hub().folder().path(), there.hub().folder().path());
    RelayedMessage { draft: Draft { restored: Some(Vec::new()), ..draft }, thread, via }
}

/// Creates two hubs, each with its own folder.
async fn two_hubs() -> (TestChannels, TestChannels) {
    (TestChannels::new(&[]).await, TestChannels::new(&[]).await)
}

#[tokio::test]
async fn relayed_post_is_written_once_where_read() {
    let (test, lab) = two_hubs().await;
    let here = test.open_another(|config| config.linked = true).await;
    here.join(&agent("bob"), &name("general")).await.unwrap();
    let (stop, outbound) = (CancellationToken::new(), test.outbound().await);
    let work = tokio::spawn(run_channels(here.clone(), outbound, stop.clone()));
    let mut follower = here.follow(&name("general"), &Transcript::default()).await.unwrap();
    for number in 0..2 {
        let relayed = relay_post(&test, &lab.channels, "qc-1", &format!("look {number}")).await;
        for _ in 0..2 {
            here.hub().submit_relayed(vec![relayed.clone()]).await.remove(0).unwrap();
        }
        let read = with_timeout(follower.next()).await.unwrap().messages;
        let shown: Vec<_> = read.iter().map(|m| (m.from.as_str(), m.to.as_str(), &*m.content.text)).collect();
        assert_eq!(shown, [("codex@lab", "qc-1", &*format!("look {number}"))]);
        assert_eq!(read[0].metadata.as_ref().unwrap().get(POSTED_IN), None);
    }
    stop.cancel();
    with_timeout(work).await.unwrap().unwrap();
    assert_eq!(test.texts().await, ["look 0", "look 1"]);
    assert_eq!(here.scan().await.unwrap().ingested, 0);
    assert_eq!(here.find_tampering().await.unwrap(), []);
}

#[tokio::test]
async fn unread_channel_is_not_created() {
    let (test, lab) = two_hubs().await;
    let relayed = relay_post(&test, &lab.channels, "qc-1", "look").await;
    let id = test.channels.hub().submit_relayed(vec![relayed]).await.remove(0).unwrap().id;
    let post = test.channels.hub().journal().message(id).await.unwrap().unwrap();
    super::write_file(&test.channels, &post).await.unwrap();
    assert!(!test.path("channels/general").exists());
}

#[tokio::test]
async fn unwritten_relayed_post_is_written_on_restart() {
    let (test, lab) = two_hubs().await;
    test.channels.join(&agent("bob"), &name("general")).await.unwrap();
    let relayed = relay_post(&test, &lab.channels, "qc-1", "look").await;
    test.channels.hub().submit_relayed(vec![relayed]).await.remove(0).unwrap();
    let here = test.open_another(|config| config.linked = true).await;
    let mut follower = here.follow(&name("general"), &Transcript::default()).await.unwrap();
    tokio::select! {
        ended = super::run(&here) => panic!("{ended:?}"),
        read = with_timeout(follower.next()) => assert_eq!(read.unwrap().messages.len(), 1),
    }
}
