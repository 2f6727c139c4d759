//! Checks that every accepted message is where it belongs, and no other.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use switchboard_core::{Address, AgentId, Delivery, DeliveryState};
use switchboard_hub::{Hub, Stored};
use test_support::{Sandbox, files, poll};

use super::cast::{OTHERS, has_session};
use super::ledger::{AcceptedMessage, Ledger};
use super::stage::{CHANNEL, HUBS, SERVES, Stage, open_all, processes_of};

/// Messages in one answer of `wait_for_message`.
const MOST_IN_AN_ANSWER: usize = 20;

/// Issues in a report, from both ends of the list; each is shortened as well: a terminal or a log truncates a longer
/// report where it matters.
const MOST_PROBLEMS: usize = 20;
const MOST_OF_A_PROBLEM: usize = 200;

/// Violations found by the test. As the error of a test they are printed last, without a backtrace.
pub(super) struct Problems(Vec<String>);

impl Problems {
    /// Returns `Ok` if there are none. Otherwise it prints the servers' output before them.
    pub(super) fn none_of(problems: Vec<String>, stage: &Stage) -> Result<(), Self> {
        if problems.is_empty() {
            return Ok(());
        }
        println!("{}", stage.errors());
        Err(Self(problems))
    }
}

impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left_out = self.0.len().saturating_sub(MOST_PROBLEMS);
        write!(f, "{} problems", self.0.len())?;
        for (number, problem) in self.0.iter().enumerate() {
            match number.checked_sub(MOST_PROBLEMS / 2) {
                Some(0) if left_out > 0 => write!(f, "\n  ({left_out} more)")?,
                Some(after) if after < left_out => {}
                _ => write!(f, "\n  {}", problem.chars().take(MOST_OF_A_PROBLEM).collect::<String>())?,
            }
        }
        Ok(())
    }
}

/// Messages of agents, by sender and text. Echoes have another sender.
type Journal = HashMap<(String, String), Vec<Stored>>;

async fn journal(hub: &Hub) -> Journal {
    let (mut all, mut after) = (Journal::new(), 0);
    loop {
        let page = hub.journal().entries(after, 1000).await.unwrap();
        after = page.items.last().map_or(after, |stored| stored.seq);
        for stored in page.items {
            let key = (stored.message.from.to_string(), stored.message.body.clone());
            all.entry(key).or_default().push(stored);
        }
        if !page.more {
            return all;
        }
    }
}

/// Returns the index of a hub.
fn number(hub: &str) -> usize {
    HUBS.iter().position(|name| *name == hub).unwrap()
}

/// Returns the journals of all hubs.
async fn journals(hubs: &[Hub; 3]) -> [Journal; 3] {
    [journal(&hubs[0]).await, journal(&hubs[1]).await, journal(&hubs[2]).await]
}

/// Returns where a message must be: the hubs, with its sender's name there.
fn expected_locations(accepted: &AcceptedMessage) -> Vec<(usize, String)> {
    let mut places = vec![(number(accepted.at), accepted.from.clone())];
    if accepted.crosses_hubs() {
        let (hub, from) = accepted.destination();
        places.push((number(hub), from));
    }
    places
}

/// Returns accepted messages that have not arrived yet, with their known state.
pub(super) async fn pending_files(hubs: &[Hub; 3], ledger: &Ledger) -> Vec<String> {
    let journals = journals(hubs).await;
    let mut waiting = Vec::new();
    for (text, accepted) in ledger.accepted_messages() {
        for (hub, from) in expected_locations(&accepted) {
            let Some(found) = journals[hub].get(&(from, text.clone())) else {
                waiting.push(format!("{accepted} '{text}' is in no journal of {} yet", HUBS[hub]));
                continue;
            };
            for stored in found {
                let (_, receipt) = hubs[hub].journal().receipt(stored.message.id).await.unwrap().unwrap();
                let waits = |delivery: &Delivery| {
                    let is_unseen = delivery.state == DeliveryState::Delivered && reads(&delivery.agent);
                    delivery.state.is_pending() || is_unseen
                };
                if receipt.deliveries.iter().any(waits) {
                    waiting.push(format!("{accepted} '{text}': {}", in_short(&receipt.deliveries)));
                }
            }
        }
    }
    let answers = answers(&hubs[0], &journals[0]).await;
    waiting.extend(answers.into_iter().filter(|(times, _)| *times == 0).map(|(_, question)| question));
    waiting
}

/// True if an agent reads its mail, and its client records what it saw.
fn reads(agent: &AgentId) -> bool {
    let reads = |start: &&str| agent.name.as_str().starts_with(start);
    agent.realm.is_none() && ["box-", "mcp-", "far-", "peer-"].iter().any(reads)
}

/// Returns messages that the hub marks as seen and no output contains: their answer was in flight when a process was
/// killed. They are still in the mailbox. By agent: a command line reader has one for each kill of its command, and the
/// others have one for each disturbance of their session or server.
async fn lost_answers(
    hub: &Hub,
    journal: &Journal,
    ledger: &Ledger,
    stage: &Stage,
) -> BTreeMap<String, Vec<String>> {
    let (shown, mut found) = (ledger.shown_messages(), BTreeMap::<String, Vec<String>>::new());
    for stored in journal.values().flatten() {
        let Some((_, receipt)) = hub.journal().receipt(stored.message.id).await.unwrap() else { continue };
        for delivery in receipt.deliveries.iter().filter(|delivery| reads(&delivery.agent)) {
            // By either of the two ids that it has in answers.
            let ids = [stored.message.id.to_string(), door_workspace::native_id(&stored.message)];
            let is_shown = ids.iter().any(|id| shown.contains_key(&(delivery.agent.to_string(), id.clone())));
            if delivery.state == DeliveryState::Seen && !is_shown {
                let kill =
                    delivery.milestones.seen.map(|seen| stage.last_disturbance(seen)).unwrap_or_default();
                let expected = format!("'{}' {kill}", stored.message.body);
                found.entry(delivery.agent.to_string()).or_default().push(expected);
            }
        }
    }
    found
}

/// Checks that every accepted message is in the journal once, was delivered, and is once where its recipient reads.
pub(super) fn assert_complete(stage: &Stage, ledger: &Ledger) -> Result<(), Problems> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut problems = runtime.block_on(async {
        let hubs = open_all(stage).await;
        let journals = journals(&hubs).await;
        let files = stage.sandboxes().map(|sandbox| mail_files(sandbox));
        let mut problems = Vec::new();
        for (text, accepted) in ledger.accepted_messages() {
            for (hub, from) in expected_locations(&accepted) {
                check(&journals[hub], &hubs[hub], &accepted, &from, &text, &mut problems).await;
            }
            let name = accepted.to.split('@').next().unwrap();
            if name != "parrot" {
                let (hub, from) = accepted.destination();
                // A channel post to an agent with a mailbox is in both.
                let place = if OTHERS.contains(&name) { "channels" } else { "inbox" };
                let file = (place, from, name.to_owned(), text.clone());
                let count = files[number(hub)].get(&file).copied().unwrap_or_default();
                if count != 1 {
                    problems.push(format!("{accepted} '{text}' is in {count} files"));
                }
            }
        }
        let answers = answers(&hubs[0], &journals[0]).await;
        problems.extend(answers.into_iter().filter(|(times, _)| *times != 1).map(|(_, question)| question));
        for ((hub, journal), serve) in hubs.iter().zip(&journals).zip(SERVES) {
            problems.extend(duplicates(journal));
            for (agent, cut_off) in lost_answers(hub, journal, ledger, stage).await {
                println!("{agent}: {} were in answers that were cut off: {cut_off:#?}", cut_off.len());
                let other = if has_session(&agent) { serve } else { agent.as_str() };
                if cut_off.len() > MOST_IN_AN_ANSWER * stage.disturbances_near(&agent, other) {
                    let count = cut_off.len();
                    problems.push(format!(
                        "{count} messages are seen and were not shown to {agent}: {cut_off:?}"
                    ));
                }
            }
        }
        for hub in hubs {
            hub.shut_down().await;
        }
        problems
    });
    let twice = ledger.shown_messages().into_iter().filter(|(_, times)| *times > 1);
    let twice = twice.map(|((agent, id), times)| format!("{agent} was shown {id} {times} times"));
    problems.splice(..0, twice);
    Problems::none_of(problems, stage)
}

/// Returns messages that are in a journal more than once, also if the sender was killed before it knew the outcome. The
/// watcher sends the same text to all, and so does a sender of a failure notice.
fn duplicates(journal: &Journal) -> Vec<String> {
    let is_players =
        |from: &str| !["qc-1", "parrot", "switchboard"].iter().any(|name| from.starts_with(name));
    let twice = journal.iter().filter(|((from, _), found)| is_players(from) && found.len() > 1);
    twice
        .map(|((from, text), found)| format!("'{text}' of {from} is {} times in a journal", found.len()))
        .collect()
}

/// Checks that one message is there once, and was delivered to its recipient.
async fn check(
    journal: &Journal,
    hub: &Hub,
    accepted: &AcceptedMessage,
    from: &str,
    text: &str,
    problems: &mut Vec<String>,
) {
    let found = journal.get(&(from.to_owned(), text.to_owned())).map_or(&[][..], Vec::as_slice);
    let [stored] = found else {
        problems.push(format!("{accepted} '{text}' is {} times in a journal", found.len()));
        return;
    };
    let (_, receipt) = hub.journal().receipt(stored.message.id).await.unwrap().unwrap();
    let has_it = |state: DeliveryState| {
        matches!(state, DeliveryState::Delivered | DeliveryState::Seen | DeliveryState::Acknowledged)
    };
    if receipt.deliveries.len() != 1 || !receipt.deliveries.iter().all(|delivery| has_it(delivery.state)) {
        problems.push(format!("{accepted} '{text}': {}", in_short(&receipt.deliveries)));
    }
}

/// Returns how often the watcher and the worker have answered each question, and the question's state.
async fn answers(hub: &Hub, journal: &Journal) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for stored in journal.values().flatten() {
        let Address::Agent(to) = &stored.message.to else { continue };
        let name = to.to_string();
        if !["qc-1", "parrot"].contains(&name.as_str()) || stored.message.in_reply_to.is_some() {
            continue;
        }
        let replies = hub.journal().replies(stored.message.id, 10).await.unwrap().items;
        let times = replies.iter().filter(|reply| reply.message.from == *to).count();
        let (_, receipt) = hub.journal().receipt(stored.message.id).await.unwrap().unwrap();
        let (from, text) = (&stored.message.from, &stored.message.body);
        let states = in_short(&receipt.deliveries);
        found.push((times, format!("{name} has answered '{text}' of {from} {times} times; {states}")));
    }
    found
}

/// Summarizes the states of deliveries.
fn in_short(deliveries: &[Delivery]) -> String {
    let one = |delivery: &Delivery| {
        let (state, attempts) = (delivery.state.as_str(), delivery.attempts);
        let note = delivery.note.as_deref().unwrap_or_default();
        format!("{} by {}: {state} after {attempts} {note}", delivery.agent, delivery.route.door())
    };
    deliveries.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Returns how many files contain a message: hub, sender, recipient, text.
fn mail_files(sandbox: &Sandbox) -> BTreeMap<(&'static str, String, String, String), usize> {
    let mut found = BTreeMap::new();
    files::walk(&sandbox.file(""), &mut |path| {
        let relative = path.strip_prefix(sandbox.file("")).unwrap().to_owned();
        let parts: Vec<&str> = relative.iter().filter_map(|part| part.to_str()).collect();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let key = match parts[..] {
            ["inbox" | "archive", agent, name] if name.starts_with("msg_") => {
                let file = files::read_json_object(path).unwrap();
                ("inbox", text(&file["sender"]), agent.to_owned(), text(&file["payload"]))
            }
            ["channels", CHANNEL, name] if name.starts_with("msg-") => {
                let file = files::read_json_object(path).unwrap();
                ("channels", text(&file["from"]), text(&file["to"]), text(&file["content"]["text"]))
            }
            _ => return,
        };
        *found.entry(key).or_default() += 1;
    });
    found
}

/// Checks that after the end no process runs, and no runtime file remains. A message that was half written when its
/// writer was killed is cleaned up by the next server.
pub(super) fn assert_nothing_remains(stage: Stage) {
    let (sandboxes, _ca) = stage.end();
    for sandbox in sandboxes {
        all_have_ended(&sandbox);
        let mut serve = sandbox.serve();
        let mut half_written = Vec::new();
        let put_away = poll::within(poll::TIMEOUT, || {
            half_written = files_like(&sandbox, |name| name.starts_with(".tmp-"));
            half_written.is_empty().then_some(())
        });
        assert!(put_away.is_some(), "half written and not put away: {half_written:?}");
        let status = serve.terminate();
        assert!(status.success(), "{status}: {}", serve.errors());
        all_have_ended(&sandbox);
        let left = files_like(&sandbox, |name| {
            let is_ours_for_a_while = [".tmp-", "server_info", "router.json"];
            let is_socket = name.rsplit_once('.').is_some_and(|(_, kind)| kind == "sock");
            is_socket || is_ours_for_a_while.iter().any(|start| name.starts_with(start))
        });
        assert_eq!(left, Vec::<std::path::PathBuf>::new());
        assert_eq!(sandbox.run(["doctor"]).code, Some(0), "{:?}", sandbox.run(["doctor"]));
        assert_eq!(sandbox.run(["audit", "verify"]).code, Some(0), "{:?}", sandbox.run(["audit", "verify"]));
    }
}

fn all_have_ended(sandbox: &Sandbox) {
    let root = sandbox.path().parent().unwrap();
    let mut left = Vec::new();
    let ended = poll::within(poll::TIMEOUT, || {
        left = processes_of(root);
        left.is_empty().then_some(())
    });
    assert!(ended.is_some(), "still there: {left:?}");
}

/// Returns the files of a workspace whose names match.
fn files_like(sandbox: &Sandbox, is_meant: impl Fn(&str) -> bool) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    files::walk(&sandbox.file(""), &mut |path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_meant(name) {
            found.push(path.to_owned());
        }
    });
    found
}
