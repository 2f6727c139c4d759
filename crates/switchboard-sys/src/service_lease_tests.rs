use std::os::unix::fs::PermissionsExt;

use super::*;

fn folder() -> (tempfile::TempDir, Dir) {
    let temp = tempfile::tempdir().expect("made");
    let dir = Dir::open_root(temp.path()).expect("opened");
    (temp, dir)
}

fn key(digit: &str) -> LeaseKey {
    digit.repeat(KEY_DIGITS).parse().expect("a key")
}

fn is_taken(claimed: &Result<ServiceLease, LeaseError>) -> bool {
    matches!(claimed, Err(LeaseError::Taken { .. }))
}

#[test]
fn same_key_takes_over_held_lease() {
    let (temp, folder) = folder();
    let stopped = acquire(&folder, "session.claude", Some(&key("a"))).expect("claimed");
    assert!(stopped.is_in_force());
    let taken_over = acquire(&folder, "session.claude", Some(&key("a"))).expect("taken over");
    assert!(taken_over.is_in_force() && !stopped.is_in_force());
    // The end of the former holder releases nothing.
    drop(stopped);
    assert!(is_taken(&acquire(&folder, "session.claude", None)));
    assert_eq!(
        holder(&folder, "session.claude").expect("asked"),
        Some(Signature { owner: Some(ProcessIdentity::this_process()), digest: None }.describe())
    );
    let mode = std::fs::metadata(temp.path().join("hub.session.claude")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(folder.names().expect("listed"), ["hub.session.claude"]);
    drop(taken_over);
    assert!(acquire(&folder, "session.claude", None).expect("claimed").is_in_force());
}

#[test]
fn other_key_cannot_take_over_lease() {
    let (temp, folder) = folder();
    let held = acquire(&folder, "session.claude", Some(&key("a"))).expect("claimed");
    for other in [None, Some(key("b"))] {
        assert!(is_taken(&acquire(&folder, "session.claude", other.as_ref())));
    }
    assert!(acquire_shared(&folder, "session.claude").expect("asked").is_none());
    assert!(held.is_in_force());
    // The key does not stand in the file, and what stands there is no key.
    let text = std::fs::read_to_string(temp.path().join("hub.session.claude")).expect("read");
    let digest = text.lines().nth(1).expect("a digest");
    assert!(!text.contains(&key("a").0) && digest.parse::<LeaseKey>().is_err(), "{text}");
    assert_ne!(digest, key("a").digest("hub.session.codex"), "the digest is of one lease");
}

#[test]
fn lease_without_key_is_never_taken_over() {
    let (_temp, folder) = folder();
    let alone = || acquire(&folder, "session.claude", None).expect("claimed");
    let shared = || acquire_shared(&folder, "session.claude").expect("asked").expect("shared");
    for held in [&alone as &dyn Fn() -> ServiceLease, &shared] {
        let held = held();
        assert!(is_taken(&acquire(&folder, "session.claude", Some(&key("a")))));
        assert!(is_taken(&acquire(&folder, "session.claude", None)));
        assert!(held.is_in_force());
    }
}

#[test]
fn deleted_lease_file_counts_until_replaced() {
    let (temp, folder) = folder();
    let held = acquire(&folder, "session.claude", None).expect("claimed");
    std::fs::remove_file(temp.path().join("hub.session.claude")).expect("removed");
    assert!(held.is_in_force());
    let next = acquire(&folder, "session.claude", None).expect("claimed");
    assert!(next.is_in_force() && !held.is_in_force());
}

#[test]
fn keys_have_one_form() {
    for text in ["", "abc", &"g".repeat(KEY_DIGITS), &"a".repeat(KEY_DIGITS + 1)] {
        assert_eq!(text.parse::<LeaseKey>(), Err(ParseLeaseKeyError), "{text}");
    }
    assert_eq!(format!("{:?}", key("a")), "LeaseKey(redacted)");
}

#[test]
fn stopped_holder_does_not_run_its_service() {
    use rustix::process::{Pid, Signal, kill_process};

    let (_temp, folder) = folder();
    assert!(!is_running(&folder, "serve").expect("asked"));
    let service = acquire(&folder, "serve", None).expect("claimed");
    assert!(is_running(&folder, "serve").expect("asked"));
    // The same lock, signed by a process that can be stopped.
    let mut child = process_that_sleeps();
    let pid = child.id();
    let text = ProcessIdentity::this_process().to_string();
    let mut parts: Vec<&str> = text.split('/').collect();
    let (pid_text, started) =
        (pid.to_string(), crate::platform::process_started(pid).expect("runs").to_string());
    parts[1] = &pid_text;
    parts[2] = &started;
    let owner = Some(parts.join("/").parse().expect("an owner"));
    let mut file = folder.open_own("hub.serve").expect("opened");
    Signature { owner, digest: None }.write(&mut file).expect("written");
    let signal =
        |signal| kill_process(Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid"), signal);
    assert!(is_running(&folder, "serve").expect("asked"));
    signal(Signal::STOP).expect("stopped");
    let is_stopped = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        !is_running(&folder, "serve").expect("asked")
    });
    child.kill().expect("killed");
    child.wait().expect("ended");
    // Other systems do not tell.
    assert!(is_stopped || !cfg!(target_os = "linux"));
    drop(service);
}

#[expect(clippy::disallowed_methods, reason = "a process to be stopped, and nothing of a workspace")]
fn process_that_sleeps() -> std::process::Child {
    std::process::Command::new("sleep").arg("600").spawn().expect("started")
}
