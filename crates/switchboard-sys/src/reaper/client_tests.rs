use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;
use crate::platform::{process_and_ancestors, process_started};
use crate::process::Child;

/// Far longer than any of these programs needs, so that only a hang reaches it.
const DEADLINE: Duration = Duration::from_mins(1);
const SHORT: Duration = Duration::from_millis(50);

/// Writes its pid and stays, whatever it is asked: a plain child, one in a session of its own, and one that has lost its
/// parent, its session and its environment.
const DETACH: &str = r#"
trap '' TERM HUP INT
stay='trap "" TERM HUP INT; echo $$; exec sleep 1000 > /dev/null'
sh -c "$stay" &
setsid sh -c "$stay" &
( env -i "$(command -v setsid)" "$(command -v sh)" -c "PATH=$PATH; $stay" & )
"#;

fn guard() -> ReaperClient {
    // Beside the test binary, in `examples`: Cargo builds it with the tests.
    let test = std::env::current_exe().expect("the test has a path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("it is in a target folder");
    ReaperClient::new(PathBuf::from(target).join("examples").join("reaper"), [""; 0])
}

async fn start(guard: &ReaperClient, script: &str) -> Child {
    Spawn::new("sh").args(["-c", script]).start(Some(guard)).await.expect("the shell starts")
}

/// Starts a script below a reaper and returns its pid and those that it writes.
async fn start_with(guard: &ReaperClient, script: &str, count: usize) -> (Child, BTreeSet<u32>) {
    let mut child = start(guard, script).await;
    let mut lines = BufReader::new(child.stdout_reader().expect("stdout is piped")).lines();
    let mut pids = BTreeSet::from([child.pid()]);
    for _ in 0..count {
        let line = lines.next_line().await.expect("stdout is readable").expect("a line");
        pids.insert(line.parse().expect("a pid"));
    }
    (child, pids)
}

fn alive(pids: &BTreeSet<u32>) -> Vec<u32> {
    pids.iter().copied().filter(|pid| process_started(*pid).is_some()).collect()
}

async fn assert_ends(pids: &BTreeSet<u32>) {
    let wait = async {
        while !alive(pids).is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(DEADLINE, wait).await.is_ok(), "{:?} still run", alive(pids));
}

fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
}

#[tokio::test]
async fn program_below_a_reaper_reads_writes_and_ends() {
    let guard = guard();
    let spawn = Spawn::new("sh").args(["-c", "cat; echo $SEEN >&2; exit 7"]).env("SEEN", "yes");
    let mut child = spawn.start(Some(&guard)).await.expect("the shell starts");
    let mut stdin = child.stdin_writer().expect("stdin is piped");
    stdin.write_all(b"hello").await.expect("it reads");
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout_reader().expect("stdout").read_to_string(&mut out).await.expect("text");
    child.stderr_reader().expect("stderr").read_to_string(&mut err).await.expect("text");
    assert_eq!((out.as_str(), err.as_str()), ("hello", "yes\n"));
    assert_eq!(child.wait().await.expect("it ends").code(), Some(7));
    assert_eq!(child.wait().await.expect("the answer stays").code(), Some(7));
}

#[tokio::test]
async fn status_of_short_lived_program_is_reported() {
    let guard = guard();
    for _ in 0..50 {
        let status = start(&guard, "exit 3").await.wait().await.expect("it ends");
        assert_eq!(status.code(), Some(3));
    }
}

#[tokio::test]
async fn missing_program_is_named_below_reaper() {
    let error =
        Spawn::new("no-such-program").cwd("/").start(Some(&guard())).await.expect_err("there is none");
    assert_eq!(error.to_string(), "cannot start `no-such-program` in /");
    assert_eq!(error.into_io_error().kind(), io::ErrorKind::NotFound);
}

#[tokio::test]
async fn long_arguments_and_variables_arrive_complete() {
    let long = "x".repeat(100 << 10);
    let spawn = Spawn::new("sh").args(["-c", "printf %s \"$1$LONG\"", "sh", &long]).env("LONG", &long);
    let mut child = spawn.start(Some(&guard())).await.expect("the shell starts");
    let mut out = String::new();
    child.stdout_reader().expect("stdout").read_to_string(&mut out).await.expect("text");
    assert_eq!(out.len(), 200 << 10);
    assert!(child.wait().await.expect("it ends").success());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn detached_descendants_are_killed_with_program() {
    let guard = guard();
    for round in 0..20 {
        let stays = format!("{DETACH} while :; do sleep 1000 > /dev/null; done");
        let (mut child, pids) = match round % 4 {
            3 => start_with(&guard, &format!("{DETACH} read -r line; exit 3"), 3).await,
            _ => start_with(&guard, &stays, 3).await,
        };
        match round % 4 {
            0 => drop(child),
            1 => drop(child.stop(SHORT).await.expect("it is stopped")),
            2 => {
                kill(child.pid());
                child.wait().await.expect("it ends");
            }
            _ => {
                let status = child.wait().await.expect("it ends");
                assert_eq!(status.code(), Some(3));
            }
        }
        if round % 4 == 0 {
            assert_ends(&pids).await;
        }
        // Nothing is left when the call returns, not some time later.
        assert_eq!(alive(&pids), [0; 0], "round {round}");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_reaper_or_root_kills_programs() {
    let guard = guard();
    for round in 0..20 {
        let stays = format!("{DETACH} while :; do sleep 1000 > /dev/null; done");
        let (mut child, pids) = start_with(&guard, &stays, 3).await;
        let above = process_and_ancestors(child.pid());
        kill(above[1 + round % 2].pid);
        match child.wait().await {
            // The reaper lives, sees the end of the root and kills the program.
            Ok(status) => assert_eq!((status.signal(), round % 2), (Some(9), 1)),
            Err(error) => assert_eq!((error.to_string().as_str(), round % 2), ("its reaper was killed", 0)),
        }
        assert_eq!(alive(&pids), [0; 0], "round {round}");
    }
}

#[tokio::test]
async fn detached_processes_get_sigterm_before_they_are_killed() {
    let script =
        r#"setsid sh -c 'trap "echo saved; exit" TERM; echo ready; while :; do sleep 0.01; done' & wait"#;
    let guard = guard();
    let mut child = start(&guard, script).await;
    let mut lines = BufReader::new(child.stdout_reader().expect("stdout is piped")).lines();
    assert_eq!(lines.next_line().await.expect("readable").as_deref(), Some("ready"));
    let stop = tokio::spawn(child.stop(Duration::from_millis(500)));
    assert_eq!(lines.next_line().await.expect("readable").as_deref(), Some("saved"));
    stop.await.expect("no panic").expect("stop succeeds");
}

#[tokio::test]
async fn unrelated_process_is_not_killed() {
    let other = Spawn::new("sleep").args(["1000"]).spawn().expect("it starts");
    let guard = guard();
    let (child, pids) = start_with(&guard, DETACH, 3).await;
    child.stop(SHORT).await.expect("it is stopped");
    assert_eq!(alive(&pids), [0; 0]);
    assert!(process_started(other.pid()).is_some());
}
