use serde_json::json;

use super::*;

fn start() -> Timestamp {
    "2025-01-01T00:00:00Z".parse().unwrap()
}

#[test]
fn the_file_has_exactly_the_fields_of_the_protocol() {
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
fn only_the_own_file_is_removed() {
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
fn a_damaged_file_is_named_and_left() {
    let home = tempfile::tempdir().unwrap();
    let folder = Dir::open_root(home.path()).unwrap();
    folder.replace("server_info.json", b"{", 0o600).unwrap();
    let error = ServerInfo::read(&folder).unwrap_err();
    assert!(error.to_string().starts_with("server_info.json is not valid"), "{error}");
    assert!(!ServerInfo::new(3100, start()).remove(&folder).unwrap());
}

#[test]
fn a_server_is_stale_when_its_process_is_gone() {
    let ours = ServerInfo::new(3100, start());
    assert!(!ours.is_stale());
    // Above what Linux and macOS hand out, so nobody has it.
    assert!(ServerInfo { pid: 2_000_000_000, ..ours }.is_stale());
}
