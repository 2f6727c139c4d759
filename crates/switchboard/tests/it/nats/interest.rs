//! A hub receives the channels and teams that its agents read, by one consumer.

use async_nats::jetstream::consumer::PullConsumer;
use futures_util::TryStreamExt;
use serde_json::{Value, json};
use switchboard_core::{Address, resolve};
use test_support::nats::Release;
use test_support::{Running, poll};

use super::hub::{Linked, numbers, write};
use super::{runtime, server};

fn post(hub: &Linked, agent: &str, channel: &str, text: &str) {
    hub.sandbox.ok(["channel", "post", "--agent", agent, "--channel", channel, "--text", text]);
}

fn posts(hub: &Linked, channel: &str) -> Vec<String> {
    let posts = hub.sandbox.json(["channel", "read", "--channel", channel, "--all"]);
    posts.iter().map(|post| post["content"]["text"].as_str().unwrap().to_owned()).collect()
}

fn watch(hub: &Linked, agent: &str, channel: &str) -> Running {
    let watch = hub.sandbox.start(["watch", "--agent", agent, "--channel", channel, "--", "true"]);
    watch.line();
    watch
}

/// Waits until a hub knows that an agent of another one reads a channel.
pub(super) fn wait_for_reader(hub: &Linked, agent: &str, channel: &str) {
    poll::until(&format!("{} to know that {agent} reads {channel}; {}", hub.name, hub.errors()), || {
        // `who` refuses a name that the hub does not know.
        hub.sandbox.json(["agents"]).into_iter().find(|known| known["name"] == agent)?;
        let reads = &hub.sandbox.json(["who", agent])[0]["channel"];
        reads.as_str()?.split(',').any(|one| one == channel).then_some(())
    });
}

/// Returns how many messages the server has delivered to a hub's consumer, and its subjects.
fn delivered(url: &str, hub: &str) -> Option<(u64, Vec<String>)> {
    runtime().block_on(async {
        let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
        let stream = context.get_stream("switchboard_messages").await.ok()?;
        let mut consumer: PullConsumer = stream.get_consumer(hub).await.ok()?;
        let info = consumer.info().await.ok()?;
        let mut filters = info.config.filter_subjects.clone();
        filters.retain(|filter| !filter.is_empty());
        Some((info.delivered.consumer_sequence, filters))
    })
}

#[test]
fn hub_receives_only_channels_that_it_reads() {
    let test = "hub_receives_only_channels_that_it_reads";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let url = server.url();
    let lab = Linked::start("lab", &url, &["codex"], json!({}));
    let office = Linked::start("office", &url, &["qc-1"], json!({}));
    let _general = watch(&office, "qc-1", "general");
    wait_for_reader(&lab, "qc-1@office", "general");
    for number in 0..50 {
        post(&lab, "codex", "deep", &format!("early {number}"));
    }
    post(&lab, "codex", "general", "first");
    poll::until("the post", || posts(&office, "general").contains(&"first".to_owned()).then_some(()));
    let (count, filters) = delivered(&url, "office").expect("a consumer");
    assert!(count < 50, "{count} messages were delivered, and 50 of them are for no agent there");
    assert!(filters.contains(&"switchboard.*.group.channel.general".to_owned()), "{filters:?}");
    assert!(!filters.iter().any(|filter| filter.contains("deep")), "{filters:?}");

    // A new reader gets later posts.
    let _deep = watch(&office, "docs-1", "deep");
    wait_for_reader(&lab, "docs-1@office", "deep");
    post(&lab, "codex", "deep", "late");
    poll::until(&format!("the late post; {}", office.errors()), || {
        posts(&office, "deep").contains(&"late".to_owned()).then_some(())
    });
    assert_eq!(posts(&office, "deep"), ["late"]);
}

#[test]
fn new_reader_gets_later_posts_over_the_oldest_server() {
    let test = "new_reader_gets_later_posts_over_the_oldest_server";
    let Some(server) = server(test, Release::Oldest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let mut office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    post(&lab, "codex", "deep", "early");
    lab.send("codex", &["qc-1", "after the post"]);
    office.wait_for_mail("qc-1", "after the post");
    let _deep = watch(&office, "docs-1", "deep");
    wait_for_reader(&lab, "docs-1@office", "deep");
    // Posts during an outage of the hub arrive when it is back.
    office.serve.take().unwrap().kill();
    post(&lab, "codex", "deep", "while it was away");
    office.serve = Some(office.sandbox.serve());
    post(&lab, "codex", "deep", "late");
    poll::until(&format!("the late post; {}", office.errors()), || {
        posts(&office, "deep").contains(&"late".to_owned()).then_some(())
    });
    assert_eq!(posts(&office, "deep"), ["while it was away", "late"]);
}

/// An agent of the other hub answers as soon as its hub has the post.
#[test]
fn first_post_waits_until_hub_receives_channel() {
    let test = "first_post_waits_until_hub_receives_channel";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    office.wait_for("codex@lab");
    runtime().block_on(async {
        let there = office.hub().await;
        for round in 0..5 {
            let channel = format!("q{round}");
            let _watch = watch(&office, "qc-1", &channel);
            wait_for_reader(&lab, "qc-1@office", &channel);
            // A question to all, and one to the agent, which is published for its hub as well.
            let to: &[&str] = if round % 2 == 0 { &[] } else { &["--to", "qc-1"] };
            let args = ["channel", "post", "--agent", "codex", "--channel", &channel, "--text", "number 0"];
            let mut changes = there.changes();
            lab.sandbox.ok(args.iter().chain(to).copied());
            while numbers(&there).await.len() < 2 * round + 1 {
                changes.next().await;
            }
            // The hub may learn that the other one reads the channel a moment after it has received the question.
            let group: Address = format!("#{channel}").parse().unwrap();
            let writer = "qc-1".parse().unwrap();
            while resolve(&group, &writer, there.directory().await.unwrap().as_ref()).is_err() {
                changes.next().await;
            }
            write(&there, "qc-1", &format!("#{channel}"), 1..2).await;
            // One agent's messages arrive in order, so the answer has arrived before this one.
            let last = format!("that is all of {channel}");
            office.send("qc-1", &["codex@lab", &last]);
            lab.wait_for_mail("codex", &last);
            let answer = "number 1".to_owned();
            assert!(posts(&lab, &channel).contains(&answer), "{channel}: {:?}", posts(&lab, &channel));
        }
    });
}

/// The recipient's hub may read the message and not the channel.
#[test]
fn post_to_agent_reaches_hub_without_reader() {
    let test = "post_to_agent_reaches_hub_without_reader";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    lab.wait_for("qc-1@office");
    let args = ["channel", "post", "--agent", "codex", "--channel", "deep", "--to", "qc-1", "--text", "look"];
    lab.sandbox.ok(args);
    office.wait_for_mail("qc-1", "look");
    let _deep = watch(&office, "docs-1", "deep");
    wait_for_reader(&lab, "docs-1@office", "deep");
    let args =
        ["channel", "post", "--agent", "codex", "--channel", "deep", "--to", "qc-1", "--text", "again"];
    lab.sandbox.ok(args);
    office.wait_for_mail("qc-1", "again");
    lab.send("codex", &["qc-1", "that is all"]);
    office.wait_for_mail("qc-1", "that is all");
    let bodies: Vec<Value> =
        office.sandbox.json(["inbox", "qc-1"]).into_iter().map(|mail| mail["body"].clone()).collect();
    assert_eq!(bodies, ["look", "again", "that is all"], "each once");
}

#[test]
fn team_message_reaches_hubs_with_members() {
    let test = "team_message_reaches_hubs_with_members";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let lab = Linked::start("lab", &server.url(), &["codex"], json!({}));
    let office = Linked::start("office", &server.url(), &["qc-1"], json!({}));
    office.sandbox.ok(["team", "create", "backend"]);
    office.sandbox.ok(["team", "add", "backend", "qc-1"]);
    poll::until("lab to know the team", || {
        let agents = lab.sandbox.json(["agents"]);
        agents.iter().any(|a| a["name"] == "qc-1@office" && a["team"] == "backend").then_some(())
    });
    let sent = lab.send("codex", &["team:backend", "to the team"]);
    office.wait_for_mail("qc-1", "to the team");
    lab.wait_for_state(sent["native_id"].as_str().unwrap(), "qc-1@office", "delivered");
}

#[test]
fn hubs_have_one_consumer_each() {
    let test = "hubs_have_one_consumer_each";
    let Some(server) = server(test, Release::Newest, "") else { return };
    let mut hubs =
        ["lab", "office", "attic"].map(|name| Linked::start(name, &server.url(), &["a1", "a2"], json!({})));
    for hub in &hubs {
        for other in ["lab", "office", "attic"].into_iter().filter(|other| *other != hub.name) {
            hub.wait_for(&format!("a1@{other}"));
        }
    }
    // Also after a kill and a change of interest.
    hubs[1].kill_and_restart();
    let _deep = watch(&hubs[1], "docs-1", "deep");
    wait_for_reader(&hubs[0], "docs-1@office", "deep");
    let mut last = 0;
    let settled = poll::within(poll::TIMEOUT, || {
        last = runtime().block_on(consumers(&server.url()));
        (last == hubs.len()).then_some(())
    });
    assert!(settled.is_some(), "{last} consumers for {} hubs", hubs.len());
}

/// Returns the number of consumers of all streams and buckets of the server.
async fn consumers(url: &str) -> usize {
    let context = async_nats::jetstream::new(async_nats::connect(url).await.unwrap());
    let names: Vec<String> = context.stream_names().try_collect().await.unwrap();
    let mut count = 0;
    for name in names {
        let stream = context.get_stream(name).await.unwrap();
        count += stream.consumer_names().try_collect::<Vec<String>>().await.unwrap().len();
    }
    count
}
