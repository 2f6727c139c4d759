use super::*;
use crate::process::Spawn;

#[test]
fn an_owner_reads_back_what_it_wrote() {
    let owner = Owner::this_process();
    assert_eq!(owner.to_string().parse(), Ok(owner.clone()));
    assert_eq!(owner.pid(), std::process::id());
    assert_eq!(owner.host(), this_host());
}

#[test]
fn an_owner_without_a_start_mark_reads_back() {
    let owner: Owner = "mac.local/77/".parse().expect("the start mark may be empty");
    assert_eq!(owner.to_string(), "mac.local/77/");
}

#[test]
fn other_texts_are_refused() {
    for text in
        ["", "host", "host/1", "host/x/1", "host/0/1", "host/-1/1", "host/1/2/3", "a b/1/2", "host/1/2\n"]
    {
        assert!(text.parse::<Owner>().is_err(), "{text:?}");
    }
}

#[test]
fn this_process_is_not_gone() {
    assert!(!Owner::this_process().is_gone());
}

#[test]
fn a_process_with_our_pid_and_another_start_is_gone() {
    let earlier = Owner { started: ProcessStart::from_text("1"), ..Owner::this_process() };
    // Only Linux tells when a process began; elsewhere the pid alone decides.
    assert_eq!(earlier.is_gone(), cfg!(target_os = "linux"));
}

#[test]
fn an_unknown_start_keeps_a_running_process() {
    let owner = Owner { started: ProcessStart::from_text(""), ..Owner::this_process() };
    assert!(!owner.is_gone());
}

#[test]
fn nothing_is_known_of_another_host() {
    let elsewhere =
        Owner { host: format!("not-{}", this_host()), pid: i32::MAX.unsigned_abs(), ..Owner::this_process() };
    assert!(!elsewhere.is_gone());
}

#[tokio::test]
async fn a_process_that_ended_is_gone() {
    let mut child = Spawn::new("true").spawn().expect("`true` starts");
    let owner = Owner { pid: child.pid(), ..Owner::this_process() };
    child.wait().await.expect("`true` ends");
    assert!(owner.is_gone());
}
