use std::collections::BTreeMap;
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};

use super::*;
use crate::files::Dir;
use crate::platform::process_started;

/// Far longer than any of these programs needs, so that only a hang reaches it.
const DEADLINE: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(50);

fn shell(script: &str) -> Spawn {
    Spawn::new("sh").args(["-c", script]).stdout(Stdio::piped())
}

/// Starts a shell script whose first line of output is the pid of a process that it started.
async fn start_with_grandchild(script: &str) -> (Child, u32) {
    let mut child = shell(script).stdin(Stdio::piped()).spawn().expect("the shell starts");
    let stdout = child.stdout_reader().expect("stdout is piped");
    let line = BufReader::new(stdout).lines().next_line().await.expect("stdout is readable");
    let pid = line.expect("the shell writes a line").parse().expect("the line is a pid");
    (child, pid)
}

async fn assert_ends(pid: u32) {
    let start = Instant::now();
    while process_started(pid).is_some() {
        assert!(start.elapsed() < DEADLINE, "process {pid} still runs");
        sleep(GROUP_POLL).await;
    }
}

async fn output(spawn: Spawn) -> String {
    let mut child = spawn.stdout(Stdio::piped()).spawn().expect("the program starts");
    let mut text = String::new();
    let mut stdout = child.stdout_reader().expect("stdout is piped");
    stdout.read_to_string(&mut text).await.expect("stdout is text");
    assert!(child.wait().await.expect("the program ends").success());
    text
}

#[tokio::test]
async fn drop_kills_whole_group() {
    let (child, grandchild) = start_with_grandchild("sleep 100 & echo $!; wait").await;
    let leader = child.pid();
    assert!(process_started(grandchild).is_some());
    drop(child);
    assert_ends(leader).await;
    assert_ends(grandchild).await;
}

#[tokio::test]
async fn drop_kills_processes_that_ignore_sigterm() {
    let (child, grandchild) =
        start_with_grandchild(r#"trap "" TERM; sh -c 'sleep 100; sleep 100' & echo $!; wait"#).await;
    drop(child);
    assert_ends(grandchild).await;
}

#[tokio::test]
async fn stop_ends_whole_group() {
    let (child, grandchild) = start_with_grandchild("sleep 100 & echo $!; wait").await;
    let leader = child.pid();
    let status = timeout(DEADLINE, child.stop(SHORT)).await.expect("stop returns").expect("stop succeeds");
    assert!(!status.success());
    assert_ends(leader).await;
    assert_ends(grandchild).await;
}

#[tokio::test]
async fn stop_kills_processes_that_ignore_sigterm() {
    let (child, grandchild) =
        start_with_grandchild(r#"trap "" TERM; sh -c 'sleep 100; sleep 100' & echo $!; wait"#).await;
    timeout(DEADLINE, child.stop(SHORT)).await.expect("stop returns").expect("stop succeeds");
    assert_ends(grandchild).await;
}

#[tokio::test]
async fn closed_stdin_ends_program() {
    let child = shell("cat > /dev/null; exit 7").stdin(Stdio::piped()).spawn().expect("the shell starts");
    let status = child.stop(DEADLINE).await.expect("stop succeeds");
    assert_eq!(status.code(), Some(7));
}

#[tokio::test]
async fn grandchild_gets_same_grace() {
    // The leader dies of SIGTERM at once; the one it started needs a moment to write its last line.
    let script =
        r#"sh -c 'trap "sleep 0.2; echo saved; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait"#;
    let mut child = shell(script).spawn().expect("the shell starts");
    let mut lines = BufReader::new(child.stdout_reader().expect("stdout is piped")).lines();
    assert_eq!(lines.next_line().await.expect("stdout is readable").as_deref(), Some("ready"));
    let Process::Leader(leader) = child.0 else { panic!("there is no reaper") };
    let stop = tokio::spawn(async move {
        leader.signal_group(Signal::TERM);
        leader.stop(DEADLINE).await
    });
    assert_eq!(lines.next_line().await.expect("stdout is readable").as_deref(), Some("saved"));
    stop.await.expect("no panic").expect("stop succeeds");
}

#[tokio::test]
async fn wait_kills_remaining_descendants() {
    let (mut child, grandchild) = start_with_grandchild("sleep 100 >/dev/null & echo $!; exit 3").await;
    let status = child.wait().await.expect("the shell ends");
    assert_eq!(status.code(), Some(3));
    assert_ends(grandchild).await;
    assert_eq!(child.wait().await.expect("the answer stays").code(), Some(3));
}

#[tokio::test]
async fn only_allowed_variables_reach_program() {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo sets it for every test");
    let text = output(Spawn::new("env").env("SWITCHBOARD_DECLARED", "yes").env("TZ", "Mars/Base")).await;
    let seen: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    assert_eq!(seen.get("SWITCHBOARD_DECLARED"), Some(&"yes"));
    assert_eq!(seen.get("TZ"), Some(&"Mars/Base"), "a declared variable wins over ours");
    assert!(seen.contains_key("PATH"));
    let strangers: Vec<_> = seen
        .keys()
        .filter(|name| **name != "SWITCHBOARD_DECLARED" && !is_allowed(OsStr::new(name), ENV_ALLOWED))
        .collect();
    assert!(strangers.is_empty(), "{strangers:?}");
}

#[tokio::test]
async fn variable_is_inherited_by_name_or_prefix() {
    let here = env!("CARGO_MANIFEST_DIR");
    for allowed in ["CARGO_MANIFEST_DIR", "CARGO_MANIFEST_*"] {
        let text = output(Spawn::new("env").env_allow(&[allowed])).await;
        assert!(text.lines().any(|line| line == format!("CARGO_MANIFEST_DIR={here}")), "{allowed}");
    }
}

#[test]
fn name_matches_entry_or_prefix() {
    let list = ["PATH", "LC_*"];
    for (name, expected) in [
        ("PATH", true),
        ("LC_ALL", true),
        ("LC_", true),
        ("PATHS", false),
        ("XPATH", false),
        ("LC", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(OsStr::new(name), &list), expected, "{name:?}");
    }
}

#[tokio::test]
async fn program_starts_in_its_directory() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = output(shell("pwd -P").cwd(dir.path())).await;
    assert_eq!(text.trim_end(), dir.path().canonicalize().expect("it exists").to_str().expect("it is text"));
}

#[tokio::test]
async fn program_leads_its_own_group() {
    let child = shell("sleep 100").spawn().expect("the shell starts");
    let pid = i32::try_from(child.pid()).ok().and_then(Pid::from_raw).expect("it has a pid");
    let group = rustix::process::getpgid(Some(pid)).expect("the shell runs");
    assert_eq!(group, pid);
    assert_ne!(group, rustix::process::getpgrp());
}

#[tokio::test]
async fn streams_can_be_piped() {
    let mut child =
        Spawn::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("`cat` starts");
    let mut stdin = child.stdin_writer().expect("stdin is piped");
    let mut stdout = child.stdout_reader().expect("stdout is piped");
    assert!(child.stdin_writer().is_none());
    assert!(child.stderr_reader().is_none(), "stderr was not piped");
    stdin.write_all(b"hello").await.expect("`cat` reads");
    drop(stdin);
    let mut text = String::new();
    stdout.read_to_string(&mut text).await.expect("`cat` writes");
    assert_eq!(text, "hello");
    assert!(child.wait().await.expect("`cat` ends").success());
}

#[tokio::test]
async fn missing_program_is_named() {
    let error = Spawn::new("no-such-program").cwd("/").spawn().expect_err("there is none");
    assert_eq!(error.to_string(), "cannot start `no-such-program` in /");
    assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
}

#[test]
fn programs_are_found_by_path_and_by_name() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let find = |program: &str| check_program(program.as_ref(), folder.path()).ok();
    assert!(find("sh").is_some_and(|found| found.is_absolute()) && find("/bin/sh").is_some());
    assert_eq!((find("nosuchprogram"), find("./run"), find("")), (None, None, None));
    let file = Dir::open_root(folder.path()).expect("opened");
    file.replace("run", b"#!/bin/sh\n", 0o600).expect("written");
    assert_eq!(find("./run"), None, "it may not be executed");
    file.replace("run", b"#!/bin/sh\n", 0o700).expect("written");
    assert_eq!(find("./run"), Some(folder.path().join("./run")));
    assert_eq!(find("run"), None, "a name is looked for in PATH alone");
}
