//! Valid requests with random mutations: never accepted, and never an internal error.

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use tokio::runtime::Handle;

use super::rig::{join_request, with_member_and};
use crate::keys::SecretKey;
use crate::test_peer::{Forged, TestPeer, World};
use crate::wire::parse_json;

/// Number of requests per test.
const CASES: u32 = 192;

/// A mutation of a request.
#[derive(Debug, Clone)]
enum Change {
    /// Flips one bit of one byte.
    Flip { at: usize, bit: u8 },
    /// Removes some bytes.
    Cut { at: usize, length: usize },
    /// Inserts some bytes.
    Insert { at: usize, bytes: Vec<u8> },
    /// Repeats some bytes.
    Repeat { at: usize, length: usize },
    /// Replaces a value.
    Put { path: usize, value: Value },
    /// Removes a field.
    Remove { path: usize },
    /// Adds a field.
    Add { path: usize, name: String, value: Value },
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{ "type": "github_issue" }])),
        Just(json!("x".repeat(300))),
        Just(json!("broadcast")),
        Just(json!("alice")),
        Just(json!("0.9.9")),
        Just(json!("system")),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let at = any::<usize>;
    prop_oneof![
        (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip { at, bit }),
        (at(), 1..40_usize).prop_map(|(at, length)| Change::Cut { at, length }),
        (at(), proptest::collection::vec(any::<u8>(), 1..8))
            .prop_map(|(at, bytes)| Change::Insert { at, bytes }),
        (at(), 1..200_usize).prop_map(|(at, length)| Change::Repeat { at, length }),
        (at(), values()).prop_map(|(path, value)| Change::Put { path, value }),
        at().prop_map(|path| Change::Remove { path }),
        (at(), "[a-z_]{1,12}", values()).prop_map(|(path, name, value)| Change::Add { path, name, value }),
    ]
}

/// Collects JSON pointers to every value.
fn pointers(value: &Value, prefix: &str, found: &mut Vec<String>) {
    let inner: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(n, value)| (n.to_string(), value)).collect(),
        _ => return,
    };
    for (name, value) in inner {
        let place = format!("{prefix}/{name}");
        pointers(value, &place, found);
        found.push(place);
    }
}

impl Change {
    fn apply(&self, value: &Value) -> Vec<u8> {
        let mut bytes = value.to_string().into_bytes();
        let length = bytes.len();
        let mut all = Vec::new();
        pointers(value, "", &mut all);
        let place = |n: usize| all[n % all.len()].clone();
        let mut changed = value.clone();
        match self {
            Self::Flip { at, bit } => bytes[at % length] ^= 1 << bit,
            Self::Cut { at, length: cut } => {
                let start = at % length;
                bytes.drain(start..(start + cut).min(length));
            }
            Self::Insert { at, bytes: more } => {
                let start = at % (length + 1);
                bytes.splice(start..start, more.iter().copied());
            }
            Self::Repeat { at, length: part } => {
                let start = at % length;
                let again = bytes[start..(start + part).min(length)].to_vec();
                bytes.splice(start..start, again);
            }
            Self::Put { path, value } => {
                *changed.pointer_mut(&place(*path)).unwrap() = value.clone();
                return changed.to_string().into_bytes();
            }
            Self::Remove { path } => {
                let place = place(*path);
                let (parent, name) = place.rsplit_once('/').unwrap();
                match changed.pointer_mut(parent).unwrap() {
                    Value::Object(fields) => drop(fields.remove(name)),
                    Value::Array(items) => drop(items.remove(name.parse().unwrap())),
                    _ => {}
                }
                return changed.to_string().into_bytes();
            }
            Self::Add { path, name, value } => {
                let place = place(*path);
                let inner = changed.pointer_mut(&place).unwrap();
                match inner {
                    Value::Object(fields) => drop(fields.insert(name.clone(), value.clone())),
                    Value::Array(items) => items.push(value.clone()),
                    _ => drop(changed.as_object_mut().unwrap().insert(name.clone(), value.clone())),
                }
                return changed.to_string().into_bytes();
            }
        }
        bytes
    }
}

/// Posts every mutation. Returns the answers to those that differ from the original in more than formatting.
fn post_changed(
    world: &World,
    peer: &TestPeer,
    resource: &str,
    valid: &Value,
    check: impl Fn(StatusCode, &Value) -> Result<(), TestCaseError>,
) {
    let runtime = Handle::current();
    let runner = || TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    tokio::task::block_in_place(|| {
        let run = |change: Change| {
            let body = change.apply(valid);
            // An inserted space, or an equal value, changes nothing.
            if parse_json(&body).is_ok_and(|same| same == *valid) {
                return Ok(());
            }
            let posting = world.post_bytes(peer, resource, body, HeaderMap::new());
            let (status, answer) = runtime.block_on(posting);
            prop_assert!(!status.is_server_error(), "{status}: {answer}");
            prop_assert!(status.is_success() || answer["error"]["message"].is_string(), "{status}: {answer}");
            check(status, &answer)
        };
        runner().run(&changes(), run).unwrap();
    });
}

fn without_limits(config: &mut crate::Config) {
    let limits = &mut config.limits;
    (limits.per_sender, limits.per_swarm, limits.per_client, limits.joins) = (0, 0, 0, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_message_is_refused() {
    let world = World::new();
    let (alice, swarm, key) = with_member_and(&world, without_limits).await;
    // From now on it signs whole envelopes, and every change is detected.
    let first = Forged::new(swarm, "mallory", "first", alice.now()).whole(&key);
    assert_eq!(world.post(&alice, "message", &first.value).await.0, StatusCode::OK);
    let before = alice.journal().await.len();
    let valid = Forged::new(swarm, "mallory", "Grüße, \"Bob\"\n", alice.now())
        .with("in_reply_to", first.value["message_id"].clone())
        .with("priority", "high")
        .with(
            "references",
            json!([{ "type": "github_issue", "repo": "o/r", "number": 7, "action": "claimed" }]),
        )
        .with("attachments", json!([{ "type": "inline", "mime_type": "text/plain", "content": "aGk=" }]))
        .with("metadata", json!({ "n": 1.5, "list": [1, null, "x"], "roster_epoch": 1 }))
        .whole(&key)
        .value;
    post_changed(&world, &alice, "message", &valid, |status, answer| {
        prop_assert!(status.is_client_error(), "{status}: {answer}");
        Ok(())
    });
    assert_eq!(alice.journal().await.len(), before);
    assert_eq!(world.post(&alice, "message", &valid).await.0, StatusCode::OK, "unchanged, it is taken in");
}

#[tokio::test(flavor = "multi_thread")]
async fn mutated_join_admits_no_other_key() {
    let world = World::new();
    let (alice, swarm, _) = with_member_and(&world, without_limits).await;
    let token = alice.invite().await.token;
    let key = SecretKey::from_seed(&[3; 32]);
    let valid = join_request(&token, "bob", "https://127.0.0.1:9/swarm", &key, "alice", swarm, alice.now());
    post_changed(&world, &alice, "join", &valid, |_, _| Ok(()));
    // Fields that the proof does not cover may differ: the owner's id and endpoint.
    let known = alice.swarm();
    let strangers = known.members.iter().filter(|(id, member)| {
        !matches!(id.as_str(), "alice" | "mallory") && member.public_key != key.public()
    });
    assert_eq!(strangers.count(), 0, "{:?}", known.members);
}
