//! The file as written: everything optional, names as people type them.

use serde::Deserialize;
use serde_json::Value;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ConfigFile {
    pub(super) hub: Option<HubSection>,
    pub(super) workspace: Option<WorkspaceSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HubSection {
    pub(super) body_limit_bytes: Option<usize>,
    pub(super) reply_hops: Option<usize>,
    pub(super) replies_per_minute: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WorkspaceSection {
    pub(super) retention: Option<RetentionSection>,
    pub(super) settle_ms: Option<u64>,
    pub(super) rescan_ms: Option<u64>,
}

/// Each in days.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RetentionSection {
    #[serde(rename = "archiveDays")]
    pub(super) archive: Option<u32>,
    #[serde(rename = "receiptDays")]
    pub(super) receipts: Option<u32>,
    #[serde(rename = "journalDays")]
    pub(super) journal: Option<u32>,
}

/// A key nobody knows, and those that are known in its place.
pub(super) struct Unknown {
    pub(super) path: String,
    pub(super) key: String,
    pub(super) known: &'static [&'static str],
}

/// The known keys of each object, by its path.
const KNOWN: [(&str, &[&str]); 4] = [
    ("", &["hub", "workspace"]),
    ("hub", &["bodyLimitBytes", "replyHops", "repliesPerMinute"]),
    ("workspace", &["retention", "settleMs", "rescanMs"]),
    ("workspace.retention", &["archiveDays", "receiptDays", "journalDays"]),
];

/// The keys that no setting has.
pub(super) fn unknown_keys(file: &Value) -> Vec<Unknown> {
    let mut unknown = Vec::new();
    for (path, known) in KNOWN {
        let place =
            path.split('.').filter(|part| !part.is_empty()).try_fold(file, |value, key| value.get(key));
        let keys = place.and_then(Value::as_object).into_iter().flat_map(|object| object.keys());
        for key in keys.filter(|key| !known.contains(&key.as_str()) && *key != "$schema") {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            unknown.push(Unknown { path, key: key.clone(), known });
        }
    }
    unknown
}
