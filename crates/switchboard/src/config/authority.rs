//! Authority of a workspace's settings: which settings a repository may decide.
//!
//! [`RULES`] has one rule for every setting. A setting without a rule is ignored in a workspace's file. If the user's
//! own file does not contain a setting, the built-in default counts as the user's value.

use door_workspace::Retention;
use serde_json::{Map, Value};
use switchboard_core::{LoopLimits, Name};
use switchboard_hub::HubConfig;

/// Tool profiles, in ascending order of their number of tools.
const PROFILES: &[&str] = &["none", "minimal", "messaging", "full"];

/// Default of a bound if the user's file has none; the function returns `None` for unbounded.
type Default = fn() -> Option<u64>;

/// Authority of a workspace's file over one setting.
#[derive(Clone, Copy)]
enum Rule {
    /// The workspace's value applies.
    Free,
    /// Only the user's value applies.
    UserOnly,
    /// The lower of the two values applies, for limits.
    AtMost(Default),
    /// The higher of the two values applies, for retention periods and pauses.
    AtLeast(Default),
    /// The workspace may disable the setting, but not enable it.
    OnlyOff(bool),
    /// The value that comes first in this list applies; a missing value of the user counts as the last.
    Earlier(&'static [&'static str]),
    /// The lower number of calls and the longer period apply.
    RateLimit,
    /// A tool is exposed only if both files expose it.
    Expose,
    /// Each agent gets the lower of its two budgets.
    Budgets,
}

/// The rule of each setting, by its path; `*` stands for any key.
const RULES: &[(&str, Rule)] = &[
    ("hub.bodyLimitBytes", Rule::AtMost(|| count(HubConfig::new("").body_limit))),
    ("hub.replyHops", Rule::AtMost(|| count(LoopLimits::default().hops))),
    ("hub.repliesPerMinute", Rule::AtMost(|| Some(LoopLimits::default().pair_per_minute.into()))),
    ("hub.repliesPerThread", Rule::AtMost(|| Some(LoopLimits::default().thread.into()))),
    ("hub.unseenSeconds", Rule::Free),
    ("budgets", Rule::Budgets),
    ("workspace.retention.archiveDays", Rule::AtLeast(|| days(Retention::default().archive))),
    ("workspace.retention.receiptDays", Rule::AtLeast(|| days(Retention::default().receipts))),
    ("workspace.retention.journalDays", Rule::AtLeast(|| days(Retention::default().journal))),
    ("workspace.settleMs", Rule::Free),
    ("workspace.rescanMs", Rule::Free),
    ("tools.profile", Rule::Earlier(PROFILES)),
    ("http.port", Rule::Free),
    ("http.allowedHosts", Rule::UserOnly),
    ("http.allowedOrigins", Rule::UserOnly),
    // The router lets programs drive agents without a token.
    ("router.*", Rule::UserOnly),
    ("terminals.executeFromFiles", Rule::UserOnly),
    ("terminals.tmux", Rule::UserOnly),
    ("terminals.bridge", Rule::UserOnly),
    ("terminals.notifyMail", Rule::OnlyOff(false)),
    ("terminals.idleMs", Rule::AtLeast(|| millis(door_workspace::TerminalConfig::default().idle))),
    ("channels.root", Rule::UserOnly),
    ("channels.watchers", Rule::UserOnly),
    ("channels.detection", Rule::Free),
    ("channels.rescanMs", Rule::Free),
    ("channels.heartbeatMs", Rule::Free),
    // A workspace may name its hub or opt out of the link; all other keys decide which server receives the messages.
    ("nats.enabled", Rule::OnlyOff(true)),
    ("nats.hub", Rule::Free),
    ("nats.*", Rule::UserOnly),
    // A file that came with a repository must not redirect messages or run programs.
    ("links.*", Rule::UserOnly),
    ("notify.*", Rule::UserOnly),
    ("swarm.*", Rule::UserOnly),
    ("trustedWorkspaces", Rule::UserOnly),
    // Each server that a pattern finds runs only after the user has trusted it.
    ("discoverGlobs", Rule::Free),
    ("timeouts.*", Rule::Free),
    ("introspection.*", Rule::Free),
    ("suites.*.suiteName", Rule::Free),
    ("suites.*.description", Rule::Free),
    ("suites.*.expose", Rule::Expose),
    ("suites.*.summaryMaxChars", Rule::Free),
    ("suites.*.enabled", Rule::OnlyOff(true)),
    ("suites.*.idleMs", Rule::Free),
    ("suites.*.spawnTimeoutMs", Rule::Free),
    ("suites.*.rpcTimeoutMs", Rule::Free),
    ("suites.*.concurrency", Rule::AtMost(|| count(door_suites::Limits::default().concurrency))),
    ("suites.*.rateLimit", Rule::RateLimit),
    ("suites.*.cache", Rule::Free),
    ("suites.*.wrapper.provider", Rule::Free),
    ("suites.*.wrapper.model", Rule::Free),
    ("suites.*.wrapper.maxTurns", Rule::AtMost(|| Some(door_suites::WrapperSettings::MAX_TURNS.into()))),
    ("suites.*.wrapper.maxTokens", Rule::AtMost(|| Some(door_suites::WrapperSettings::MAX_TOKENS))),
    ("suites.*.wrapper.timeoutMs", Rule::AtMost(|| Some(door_suites::WrapperSettings::TIMEOUT_MS))),
    ("suites.*.wrapper.baseUrl", Rule::UserOnly),
    ("suites.*.wrapper.command", Rule::UserOnly),
    ("suites.*.wrapper.allowDestructive", Rule::UserOnly),
];

fn count(number: usize) -> Option<u64> {
    u64::try_from(number).ok()
}

fn days(length: Option<jiff::SignedDuration>) -> Option<u64> {
    u64::try_from(length?.as_hours() / 24).ok()
}

fn millis(duration: std::time::Duration) -> Option<u64> {
    u64::try_from(duration.as_millis()).ok()
}

/// Setting of a workspace's file that is ignored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ignored {
    /// Path of the setting.
    pub(super) path: String,
    /// Reason why it is ignored, as text that follows the path.
    pub(super) reason: String,
}

/// Merges a workspace's settings into the user's; returns the ignored settings.
pub(super) fn merge(user: &mut Value, workspace: Value) -> Vec<Ignored> {
    let mut merge = Merge { ignored: Vec::new() };
    merge.descend(user, workspace, &mut Vec::new());
    merge.ignored
}

/// Returns the rule of a setting; `None` for a section or an unknown key.
fn rule_of(path: &[String]) -> Option<Rule> {
    let fits = |pattern: &str| {
        let mut keys = pattern.split('.');
        path.iter().all(|key| keys.next().is_some_and(|known| known == "*" || known == key))
            && keys.next().is_none()
    };
    RULES.iter().find(|(pattern, _)| fits(pattern)).map(|(_, rule)| *rule)
}

struct Merge {
    ignored: Vec<Ignored>,
}

impl Merge {
    fn descend(&mut self, user: &mut Value, workspace: Value, path: &mut Vec<String>) {
        if let Some(rule) = rule_of(path) {
            return self.apply(rule, user, workspace, &path.join("."));
        }
        let Value::Object(sections) = workspace else { return };
        // A section that is `null` contains no settings.
        if user.is_null() {
            *user = Value::Object(Map::new());
        }
        let Some(user) = user.as_object_mut() else { return };
        for (key, value) in sections.into_iter().filter(|(_, value)| !value.is_null()) {
            let key = if path == &["suites"] { same_suite(user, key) } else { key };
            path.push(key.clone());
            let mut merged = user.remove(&key).unwrap_or(Value::Null);
            self.descend(&mut merged, value, path);
            if !merged.is_null() {
                user.insert(key, merged);
            }
            path.pop();
        }
    }

    fn apply(&mut self, rule: Rule, user: &mut Value, workspace: Value, path: &str) {
        if workspace.is_null() {
            return;
        }
        match rule {
            Rule::Free => *user = workspace,
            Rule::UserOnly => {
                self.ignore(path, format!("counts only in your own {}", super::USER_PATH));
            }
            Rule::AtMost(default) => self.bound(user, &workspace, path, default(), |wish, own| wish <= own),
            Rule::AtLeast(default) => self.bound(user, &workspace, path, default(), |wish, own| wish >= own),
            Rule::OnlyOff(default) => {
                let own = user.as_bool().unwrap_or(default);
                if own || workspace == Value::Bool(false) {
                    *user = workspace;
                } else {
                    self.ignore(path, format!("is switched on only in your own {}", super::USER_PATH));
                }
            }
            Rule::Earlier(words) => {
                let place = |value: &Value| words.iter().position(|word| value.as_str() == Some(word));
                let own = place(user).unwrap_or(words.len());
                // Unknown values are rejected later, when the settings are resolved.
                match place(&workspace) {
                    Some(wish) if wish > own => {
                        let own = words.get(own).copied().unwrap_or_default();
                        self.ignore(path, too_loose(&workspace, own));
                    }
                    _ => *user = workspace,
                }
            }
            Rule::RateLimit => self.rate_limit(user, workspace, path),
            Rule::Expose => self.expose(user, &workspace, path),
            Rule::Budgets => self.budgets(user, &workspace),
        }
    }

    /// Merges two numbers to the stricter one. The user's number may be unbounded.
    fn bound(
        &mut self,
        user: &mut Value,
        workspace: &Value,
        path: &str,
        default: Option<u64>,
        is_stricter: fn(u64, u64) -> bool,
    ) {
        let Some(wish) = workspace.as_u64() else { return };
        // Unbounded retention is the longest, so it wins under `AtLeast`; an absent limit is the highest, so it loses
        // under `AtMost`.
        let unbounded_wins = is_stricter(u64::MAX, 0);
        match user.as_u64().or(default) {
            Some(own) if is_stricter(wish, own) => *user = workspace.clone(),
            None if !unbounded_wins => *user = workspace.clone(),
            Some(own) => self.ignore(path, too_loose(workspace, &own.to_string())),
            None => self.ignore(path, too_loose(workspace, "no end")),
        }
    }

    fn rate_limit(&mut self, user: &mut Value, workspace: Value, path: &str) {
        if user.is_null() {
            *user = workspace;
            return;
        }
        let number = |value: &Value, key: &str| value.get(key).and_then(Value::as_u64);
        let (calls, per_ms) = (number(user, "calls"), number(user, "perMs"));
        let (Some(calls), Some(per_ms)) = (calls, per_ms) else { return };
        let wished = (
            number(&workspace, "calls").unwrap_or(u64::MAX),
            number(&workspace, "perMs").unwrap_or_default(),
        );
        if wished.0 > calls || wished.1 < per_ms {
            self.ignore(path, too_loose(&workspace, &user.to_string()));
        }
        *user = serde_json::json!({ "calls": wished.0.min(calls), "perMs": wished.1.max(per_ms) });
    }

    fn expose(&mut self, user: &mut Value, workspace: &Value, path: &str) {
        let object = |value: &Value| match value {
            Value::Object(object) => object.clone(),
            Value::Null => Map::new(),
            word => Map::from_iter([("mode".to_owned(), word.clone())]),
        };
        let patterns = |object: &Map<String, Value>, key: &str| -> Option<Vec<String>> {
            let list = object.get(key)?.as_array()?;
            Some(list.iter().filter_map(|pattern| pattern.as_str().map(str::to_owned)).collect())
        };
        let (mut merged, wish) = (object(user), object(workspace));
        for key in ["mode", "bare"] {
            if let Some(value) = wish.get(key).filter(|value| !value.is_null()) {
                merged.insert(key.to_owned(), value.clone());
            }
        }
        if let Some(denied) = patterns(&wish, "deny") {
            let mut all = patterns(&merged, "deny").unwrap_or_default();
            all.extend(denied);
            merged.insert("deny".to_owned(), all.into());
        }
        match (patterns(&merged, "allow"), patterns(&wish, "allow")) {
            (None, Some(wished)) => drop(merged.insert("allow".to_owned(), wished.into())),
            (Some(own), Some(wished)) => {
                let (both, wider): (Vec<String>, Vec<String>) =
                    wished.into_iter().partition(|wish| door_suites::is_covered_by(wish, &own));
                for pattern in wider {
                    let wish = Value::from(pattern);
                    self.ignore(
                        &format!("{path}.allow"),
                        too_loose(&wish, &Value::from(own.clone()).to_string()),
                    );
                }
                merged.insert("allow".to_owned(), both.into());
            }
            (_, None) => {}
        }
        *user = Value::Object(merged);
    }

    /// Sets each agent's budget to the lower of the two files.
    fn budgets(&mut self, user: &mut Value, workspace: &Value) {
        const KEYS: [&str; 2] = ["messagesPerHour", "tokensPerDay"];
        let own = user.take();
        let mut merged = Map::new();
        for key in KEYS {
            let limit = self.lower(&own, workspace, None, key);
            merged.extend(limit.map(|limit| (key.to_owned(), limit.into())));
        }
        let mut names: Vec<(String, Option<Name>)> = Vec::new();
        for name in [&own, workspace].into_iter().flat_map(|file| agents(file).map(|(name, _)| name)) {
            // Invalid names are rejected later, when the settings are resolved.
            let parsed = Name::parse(name).ok();
            if !names.iter().any(|(known, as_name)| known == name || (parsed.is_some() && *as_name == parsed))
            {
                names.push((name.clone(), parsed));
            }
        }
        let mut of_agents = Map::new();
        for (name, _) in names {
            let mut budget = Map::new();
            for key in KEYS {
                let limit = self.lower(&own, workspace, Some(&name), key);
                budget.extend(limit.map(|limit| (key.to_owned(), limit.into())));
            }
            of_agents.insert(name, budget.into());
        }
        if !of_agents.is_empty() {
            merged.insert("agents".to_owned(), of_agents.into());
        }
        *user = Value::Object(merged);
    }

    /// Sets a limit to the lower of the two files, and returns it. The limit applies to all agents, or to one agent,
    /// which inherits the limit for all.
    fn lower(&mut self, user: &Value, workspace: &Value, agent: Option<&str>, key: &str) -> Option<u64> {
        let named = |file: &Value| {
            let limits = agents(file).filter(|(name, _)| agent.is_some_and(|agent| same_name(name, agent)));
            limits.filter_map(|(_, budget)| budget.get(key)?.as_u64()).min()
        };
        let everyone = |file: &Value| file.get(key).and_then(Value::as_u64);
        let own = named(user).or_else(|| everyone(user));
        let wish = named(workspace).or_else(|| everyone(workspace));
        let wanted = if agent.is_some() { named(workspace) } else { wish };
        if let (Some(own), Some(wanted)) = (own, wanted)
            && wanted > own
        {
            let path = agent
                .map_or_else(|| format!("budgets.{key}"), |agent| format!("budgets.agents.{agent}.{key}"));
            self.ignore(&path, too_loose(&wanted.into(), &own.to_string()));
        }
        [own, wish].into_iter().flatten().min()
    }

    fn ignore(&mut self, path: &str, reason: String) {
        self.ignored.push(Ignored { path: path.to_owned(), reason });
    }
}

/// Lists the entries for single agents in a `budgets` section.
fn agents(budgets: &Value) -> impl Iterator<Item = (&String, &Value)> {
    budgets.get("agents").and_then(Value::as_object).into_iter().flatten()
}

fn same_name(one: &str, other: &str) -> bool {
    one == other || Name::parse(one).is_ok_and(|one| Name::parse(other).is_ok_and(|other| one == other))
}

/// Returns the user's spelling of a server name if the user's file has settings for that server.
fn same_suite(user: &Map<String, Value>, name: String) -> String {
    let plain = |name: &str| door_suites::child_name(name).unwrap_or_else(|_| name.to_owned()).to_lowercase();
    let wanted = plain(&name);
    user.keys().find(|known| plain(known) == wanted).cloned().unwrap_or(name)
}

fn too_loose(wish: &Value, own: &str) -> String {
    format!("asks for {wish}, but {own} is in force; only your own {} may loosen it", super::USER_PATH)
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
