use super::*;
use crate::process::Spawn;

#[test]
fn identity_round_trips() {
    let owner = ProcessIdentity::this_process();
    assert_eq!(owner.to_string().parse(), Ok(owner.clone()));
    assert_eq!(owner.pid(), std::process::id());
    assert_eq!(owner.host(), this_host());
}

#[test]
fn identity_without_start_round_trips() {
    let owner: ProcessIdentity = "mac.local/77/".parse().expect("the start mark may be empty");
    assert_eq!(owner.to_string(), "mac.local/77/");
}

#[test]
fn malformed_identities_are_refused() {
    for text in
        ["", "host", "host/1", "host/x/1", "host/0/1", "host/-1/1", "host/1/2/3", "a b/1/2", "host/1/2\n"]
    {
        assert!(text.parse::<ProcessIdentity>().is_err(), "{text:?}");
    }
}

#[test]
fn current_process_has_not_exited() {
    assert!(!ProcessIdentity::this_process().has_exited());
}

#[test]
fn process_with_other_start_has_exited() {
    let earlier =
        ProcessIdentity { started: ProcessStart::from_text("1"), ..ProcessIdentity::this_process() };
    // Only Linux tells when a process began; elsewhere the pid alone decides.
    assert_eq!(earlier.has_exited(), cfg!(target_os = "linux"));
}

#[test]
fn unknown_start_counts_as_running() {
    let owner = ProcessIdentity { started: ProcessStart::from_text(""), ..ProcessIdentity::this_process() };
    assert!(!owner.has_exited());
}

#[test]
fn process_on_other_host_is_unknown() {
    let elsewhere = ProcessIdentity {
        host: format!("not-{}", this_host()),
        pid: i32::MAX.unsigned_abs(),
        ..ProcessIdentity::this_process()
    };
    assert!(!elsewhere.has_exited());
}

#[tokio::test]
async fn ended_process_has_exited() {
    let mut child = Spawn::new("true").spawn().expect("`true` starts");
    let owner = ProcessIdentity { pid: child.pid(), ..ProcessIdentity::this_process() };
    child.wait().await.expect("`true` ends");
    assert!(owner.has_exited());
}
