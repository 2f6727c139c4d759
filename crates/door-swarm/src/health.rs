//! Health checks of the agents and swarms of this hub, for `doctor`.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use switchboard_core::{Door, error_chain};
use switchboard_https::Response;
use switchboard_sys::platform;

use crate::agent_id::PeerId;
use crate::error::SwarmError;
use crate::swarms::Swarms;

/// Topic of the notes that record clock skew.
const CLOCK: &str = "clock";

/// Clock skew above which an issue is reported. By default, a message may be at most this far ahead of the local clock.
const MAX_SKEW: SignedDuration = SignedDuration::from_mins(2);

/// Age after which a measured skew is stale.
const SKEW_LIFETIME: SignedDuration = SignedDuration::from_hours(24);

/// How long a change of a member's endpoint is reported.
const ENDPOINT_REPORT_TIME: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A health issue that the owner should know about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthIssue {
    /// True if nothing works until the issue is fixed.
    pub is_error: bool,
    /// Description of the issue.
    pub message: String,
    /// Instructions to fix the issue.
    pub hint: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct ClockSkew {
    seconds: i64,
    at: Timestamp,
}

impl Swarms {
    /// Records clock skew above [`MAX_SKEW`] between this host and a peer.
    ///
    /// One of the two refuses messages because of the skew.
    pub(crate) async fn record_clock_skew(&self, answer: &Response, peer: &PeerId) {
        let Some(theirs) = answer.date else { return };
        let now = self.hub().now();
        let difference = now.duration_since(theirs);
        if difference.abs() <= MAX_SKEW {
            return;
        }
        tracing::warn!(%peer, seconds = difference.as_secs(), "the local clock differs from a peer's");
        let noted = serde_json::to_string(&ClockSkew { seconds: difference.as_secs(), at: now }).ok();
        if let Err(error) = self.hub().notes(Door::Swarm).put(CLOCK, peer.to_string(), noted).await {
            tracing::warn!(error = %error, "the clock skew could not be stored");
        }
    }

    /// Returns recent endpoint changes and rosters with an outdated endpoint for our agent.
    fn endpoint_issues(&self, now: Timestamp) -> Vec<HealthIssue> {
        let (snapshot, mut found) = (self.snapshot(), Vec::new());
        for ((me, _), swarm) in snapshot.swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            let realm = &swarm.realm;
            for (id, member) in swarm.members.iter().filter(|(id, _)| *id != me) {
                let change = member.endpoint_change.as_ref();
                let Some(change) =
                    change.filter(|change| now.duration_since(change.at) < ENDPOINT_REPORT_TIME)
                else {
                    continue;
                };
                let restore = format!("`switchboard swarm endpoint {id} {} --swarm {realm}`", change.from);
                let hint = if swarm.master == *me {
                    format!("if its owner did not move it, restore it for all members with {restore}")
                } else {
                    format!(
                        "if its owner did not move it, tell '{}', and restore it here with {restore}",
                        swarm.master
                    )
                };
                let message = format!(
                    "the endpoint of '{}@{realm}' changed at {:.0} from {} to {}",
                    member.name, change.at, change.from, member.endpoint
                );
                found.push(HealthIssue { is_error: false, message, hint });
            }
        }
        for identity in snapshot.identities.values() {
            for id in self.outdated_entries(identity) {
                let Some(swarm) = snapshot.swarms.get(&(identity.agent.clone(), id)) else { continue };
                let own = swarm.members.get(&identity.agent).map(|own| own.endpoint.to_string());
                let (agent, endpoint) = (&identity.agent, &identity.endpoint);
                found.push(HealthIssue {
                    is_error: true,
                    message: format!(
                        "the roster of '{}' lists {} for '{agent}', whose endpoint is {endpoint}",
                        swarm.realm,
                        own.unwrap_or_default()
                    ),
                    hint: format!(
                        "announce the current one with `switchboard swarm init --agent {agent} --endpoint {endpoint}`"
                    ),
                });
            }
        }
        found
    }

    /// Checks the agents and swarms of this hub.
    pub async fn health_issues(&self) -> Result<Vec<HealthIssue>, SwarmError> {
        let (snapshot, now) = (self.snapshot(), self.hub().now());
        let mut found = Vec::new();
        for identity in snapshot.identities.values() {
            if platform::is_network_filesystem(&identity.home) {
                found.push(HealthIssue {
                    is_error: false,
                    message: format!(
                        "the key of '{}' is in {}, which other machines can read",
                        identity.agent,
                        identity.home.display()
                    ),
                    hint: "move the folder to a local disk and set SWARM_HOME".to_owned(),
                });
            }
            if self.is_rotation_interrupted(identity).await.unwrap_or(false) {
                found.push(HealthIssue {
                    is_error: true,
                    message: format!("the key rotation of '{}' was interrupted", identity.agent),
                    hint: "finish it with `switchboard swarm key rotate`, or start `switchboard serve`"
                        .to_owned(),
                });
            } else if !snapshot.keys.contains_key(&identity.agent) {
                found.push(HealthIssue {
                    is_error: true,
                    message: format!(
                        "the key of '{}' in {} cannot be used",
                        identity.agent,
                        identity.home.display()
                    ),
                    hint: "restore agent.key with mode 600; if it is lost, move the remaining file aside and run \
                           `switchboard swarm key rotate`"
                        .to_owned(),
                });
            }
        }
        let is_used = !snapshot.identities.is_empty() || self.config().has_network_settings();
        if let Some(error) = self.client().err().filter(|_| is_used) {
            found.push(HealthIssue {
                is_error: true,
                message: format!("no peer can be called: {}", error_chain(&error)),
                hint: "fix swarm.ca and swarm.allow in your settings".to_owned(),
            });
        }
        if !snapshot.identities.is_empty() && self.config().listen.is_none() {
            found.push(HealthIssue {
                is_error: false,
                message: "no listener for messages of other owners is configured".to_owned(),
                hint: "set swarm.listen and a certificate in your settings, unless `serve` runs with --behind-proxy"
                    .to_owned(),
            });
        }
        for swarm in snapshot.swarms.values().filter(|swarm| swarm.is_active()) {
            for (id, member) in swarm.members.iter().filter(|(_, member)| member.offered_key.is_some()) {
                let realm = &swarm.realm;
                found.push(HealthIssue {
                    is_error: false,
                    message: format!(
                        "the endpoint of '{}@{realm}' has a new key that was not announced",
                        member.name
                    ),
                    hint: format!(
                        "compare it with its owner, then `switchboard swarm key accept {id} --swarm {realm}`"
                    ),
                });
            }
        }
        for ((me, _), swarm) in snapshot.swarms.iter().filter(|(_, swarm)| swarm.is_active()) {
            found.extend(swarm.contested_keys().iter().map(|contest| HealthIssue {
                is_error: false,
                message: contest.message(),
                hint: contest.hint(me),
            }));
        }
        found.extend(self.endpoint_issues(now));
        let differences = self.hub().notes(Door::Swarm).all(CLOCK).await?;
        let recent: Vec<(String, i64)> = differences
            .into_iter()
            .filter_map(|(peer, text)| Some((peer, serde_json::from_str::<ClockSkew>(&text).ok()?)))
            .filter(|(_, difference)| now.duration_since(difference.at) < SKEW_LIFETIME)
            .map(|(peer, difference)| (peer, difference.seconds))
            .collect();
        if let Some((peer, seconds)) = recent.first() {
            found.push(HealthIssue {
                // If several peers see the same skew, the local clock is wrong.
                is_error: recent.len() > 1,
                message: format!(
                    "the local clock is {seconds} s away from that of '{peer}' ({} peers)",
                    recent.len()
                ),
                hint: "set the clock, for example with NTP; peers refuse messages with a wrong time"
                    .to_owned(),
            });
        }
        Ok(found)
    }
}
