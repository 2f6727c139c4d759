//! What a look at the swarms finds that their owner should know of.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use switchboard_core::Door;
use switchboard_https::Response;
use switchboard_sys::platform;

use crate::agent_id::PeerId;
use crate::error::{SwarmError, describe};
use crate::swarms::Swarms;

/// Where differences between clocks are noted.
const CLOCK: &str = "clock";

/// A clock that differs from a peer's by more than this is worth a word.
const SKEW: SignedDuration = SignedDuration::from_mins(2);

/// A difference that was seen longer ago says nothing any more.
const RECENT: SignedDuration = SignedDuration::from_hours(24);

/// How long the change of a member's endpoint is reported.
const ENDPOINT_NEWS: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Something that the owner should know of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ailment {
    /// Whether nothing works until it is put right.
    pub is_grave: bool,
    /// What it is.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Difference {
    seconds: i64,
    at: Timestamp,
}

impl Swarms {
    /// Notes when our clock and a peer's differ: one of the two refuses messages for it.
    pub(crate) async fn note_clock(&self, answer: &Response, peer: &PeerId) {
        let Some(theirs) = answer.date else { return };
        let now = self.hub().now();
        let difference = now.duration_since(theirs);
        if difference.abs() <= SKEW {
            return;
        }
        tracing::warn!(%peer, seconds = difference.as_secs(), "our clock and that of a peer differ");
        let noted = serde_json::to_string(&Difference { seconds: difference.as_secs(), at: now }).ok();
        if let Err(error) = self.hub().put_note(Door::Swarm, CLOCK, peer.to_string(), noted).await {
            tracing::warn!(error = %error, "the difference could not be noted");
        }
    }

    /// Endpoints that have changed lately, and rosters that have another one for our agent than its own.
    fn endpoint_ailments(&self, now: Timestamp) -> Vec<Ailment> {
        let (book, mut found) = (self.book(), Vec::new());
        for ((me, _), swarm) in book.swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            let realm = &swarm.realm;
            for (id, member) in swarm.members.iter().filter(|(id, _)| *id != me) {
                let change = member.endpoint_change.as_ref();
                let Some(change) = change.filter(|change| now.duration_since(change.at) < ENDPOINT_NEWS)
                else {
                    continue;
                };
                let restore = format!("`switchboard swarm endpoint {id} {} --swarm {realm}`", change.from);
                let hint = if swarm.master == *me {
                    format!("unless its owner has moved it, restore it for everybody with {restore}")
                } else {
                    format!(
                        "unless its owner has moved it, tell '{}', and restore it here with {restore}",
                        swarm.master
                    )
                };
                let message = format!(
                    "the endpoint of '{}@{realm}' changed at {:.0} from {} to {}",
                    member.name, change.at, change.from, member.endpoint
                );
                found.push(Ailment { is_grave: false, message, hint });
            }
        }
        for identity in book.identities.values() {
            for id in self.outdated_entries(identity) {
                let Some(swarm) = book.swarms.get(&(identity.agent.clone(), id)) else { continue };
                let own = swarm.members.get(&identity.agent).map(|own| own.endpoint.to_string());
                let (agent, endpoint) = (&identity.agent, &identity.endpoint);
                found.push(Ailment {
                    is_grave: true,
                    message: format!(
                        "the roster of '{}' has {} for '{agent}', which is reached at {endpoint}",
                        swarm.realm,
                        own.unwrap_or_default()
                    ),
                    hint: format!(
                        "announce the right one with `switchboard swarm init --agent {agent} --endpoint {endpoint}`"
                    ),
                });
            }
        }
        found
    }

    /// Looks over the agents and swarms of this hub.
    pub async fn ailments(&self) -> Result<Vec<Ailment>, SwarmError> {
        let (book, now) = (self.book(), self.hub().now());
        let mut found = Vec::new();
        for identity in book.identities.values() {
            if platform::is_network_filesystem(&identity.home) {
                found.push(Ailment {
                    is_grave: false,
                    message: format!(
                        "the key of '{}' is in {}, which other machines can read",
                        identity.agent,
                        identity.home.display()
                    ),
                    hint: "move the folder to a disk of this machine, and name it with SWARM_HOME".to_owned(),
                });
            }
            if self.is_rotation_interrupted(identity).await.unwrap_or(false) {
                found.push(Ailment {
                    is_grave: true,
                    message: format!("the change of the key of '{}' was interrupted", identity.agent),
                    hint: "finish it with `switchboard swarm key rotate`, or start `switchboard serve`"
                        .to_owned(),
                });
            } else if !book.keys.contains_key(&identity.agent) {
                found.push(Ailment {
                    is_grave: true,
                    message: format!(
                        "the key of '{}' in {} cannot be used",
                        identity.agent,
                        identity.home.display()
                    ),
                    hint: "restore agent.key, with mode 600 and for its owner alone; where it is lost, move what is \
                           there aside and run `switchboard swarm key rotate`"
                        .to_owned(),
                });
            }
        }
        let is_used = !book.identities.is_empty() || self.config().says_whom_to_call();
        if let Some(error) = self.client().err().filter(|_| is_used) {
            found.push(Ailment {
                is_grave: true,
                message: format!("nobody can be called: {}", describe(&error)),
                hint: "put swarm.ca and swarm.allow right in your settings".to_owned(),
            });
        }
        if !book.identities.is_empty() && self.config().listen.is_none() {
            found.push(Ailment {
                is_grave: false,
                message: "nothing listens for messages of other owners".to_owned(),
                hint: "set swarm.listen and a certificate in your settings, unless `serve` runs with --behind-proxy"
                    .to_owned(),
            });
        }
        for swarm in book.swarms.values().filter(|swarm| swarm.is_active()) {
            for (id, member) in swarm.members.iter().filter(|(_, member)| member.offered_key.is_some()) {
                let realm = &swarm.realm;
                found.push(Ailment {
                    is_grave: false,
                    message: format!(
                        "the key of '{}@{realm}' has changed, and nobody vouches for it",
                        member.name
                    ),
                    hint: format!(
                        "compare it with its owner, then `switchboard swarm key accept {id} --swarm {realm}`"
                    ),
                });
            }
        }
        for ((me, _), swarm) in book.swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            found.extend(swarm.contests().iter().map(|contest| Ailment {
                is_grave: false,
                message: contest.message(),
                hint: contest.hint(me),
            }));
        }
        found.extend(self.endpoint_ailments(now));
        let differences = self.hub().notes(Door::Swarm, CLOCK).await?;
        let recent: Vec<(String, i64)> = differences
            .into_iter()
            .filter_map(|(peer, text)| Some((peer, serde_json::from_str::<Difference>(&text).ok()?)))
            .filter(|(_, difference)| now.duration_since(difference.at) < RECENT)
            .map(|(peer, difference)| (peer, difference.seconds))
            .collect();
        if let Some((peer, seconds)) = recent.first() {
            found.push(Ailment {
                // Several peers with the same complaint: it is our clock.
                is_grave: recent.len() > 1,
                message: format!(
                    "our clock is {seconds} s away from that of '{peer}' ({} peers)",
                    recent.len()
                ),
                hint: "set the clock, for instance by NTP; messages with a wrong time are refused".to_owned(),
            });
        }
        Ok(found)
    }
}
