use serde_json::json;

use super::*;

fn start() -> Timestamp {
    "2025-01-01T00:00:00Z".parse().unwrap()
}

#[test]
fn file_has_exactly_the_protocol_fields() {
    let info = ServerInfo { pid: 12345, ..ServerInfo::new(3100, start()) };
    let expected = json!({
        "port": 3100,
        "host": "127.0.0.1",
        "transport": "sse",
        "sseEndpoint": "/sse",
        "messagesEndpoint": "/messages",
        "healthEndpoint": "/health",
        "pid": 12345,
        "startedAt": "2025-01-01T00:00:00.000Z",
    });
    assert_eq!(serde_json::to_value(&info).unwrap(), expected);
}

#[test]
fn other_servers_file_is_preserved() {
    let home = tempfile::tempdir().unwrap();
    let folder = Dir::open_root(home.path()).unwrap();
    let ours = ServerInfo::new(3100, start());
    assert_eq!(ServerInfo::read(&folder).unwrap(), None);
    assert!(!ours.remove(&folder).unwrap());

    let later = ServerInfo { started_at: "2025-01-01T00:00:01.000Z".to_owned(), ..ours.clone() };
    later.write(&folder).unwrap();
    assert!(!ours.remove(&folder).unwrap());
    assert_eq!(ServerInfo::read(&folder).unwrap(), Some(later.clone()));
    assert!(later.remove(&folder).unwrap());
    assert_eq!(ServerInfo::read(&folder).unwrap(), None);
}

#[test]
fn damaged_file_is_reported_and_preserved() {
    let home = tempfile::tempdir().unwrap();
    let folder = Dir::open_root(home.path()).unwrap();
    folder.replace("server_info.json", b"{", 0o600).unwrap();
    let error = ServerInfo::read(&folder).unwrap_err();
    assert!(error.to_string().starts_with("server_info.json is not valid"), "{error}");
    assert!(!ServerInfo::new(3100, start()).remove(&folder).unwrap());
}

#[test]
fn server_without_process_is_stale() {
    let ours = ServerInfo::new(3100, start());
    assert!(!ours.is_stale());
    // Above the maximum pid of Linux and macOS.
    assert!(ServerInfo { pid: 2_000_000_000, ..ours }.is_stale());
}
