use std::io::Cursor;

use tokio::io::{AsyncBufReadExt, BufReader};

use super::*;

/// Starts a shell script that writes as many pids as are asked for.
async fn start(script: &str, mark: &str, count: usize) -> (Child, Vec<u32>) {
    let spawn = Spawn::new("sh").args(["-c", script]).env(MARK, mark).stdout(Stdio::piped());
    let mut child = spawn.spawn().expect("the shell starts");
    let mut lines = BufReader::new(child.take_stdout().expect("stdout is piped")).lines();
    let mut pids = vec![child.pid()];
    for _ in 0..count {
        let line = lines.next_line().await.expect("stdout is readable").expect("the shell writes a line");
        pids.push(line.trim().parse().expect("the line is a pid"));
    }
    (child, pids)
}

fn assert_gone(pids: &[u32]) {
    for &pid in pids {
        assert_eq!(platform::process_started(pid), None, "process {pid} still runs");
    }
}

#[tokio::test]
async fn when_the_input_ends_the_groups_are_killed_with_those_who_ignore_everything() {
    let script = r#"trap "" TERM HUP; (trap "" TERM HUP; sleep 100; sleep 100) & echo $!; wait"#;
    let (_child, pids) = start(script, "unused", 1).await;
    run(Cursor::new(format!("=other-mark-{}\n+{}\n", pids[0], pids[0]))).expect("the guard runs");
    assert_gone(&pids);
}

#[tokio::test]
async fn what_is_let_go_of_and_what_belongs_to_others_stays() {
    let (child, pids) = start("sleep 100", "unused", 0).await;
    run(Cursor::new(format!("=nobody-{0}\n+{0}\n-{0}\n", pids[0]))).expect("the guard runs");
    assert!(platform::process_started(pids[0]).is_some());
    drop(child);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_left_its_group_or_was_never_told_of_is_found_by_its_mark() {
    let script = "setsid sh -c 'echo $$; sleep 100; sleep 100' & wait";
    let mark = format!("mark-{}", fastrand::u64(..));
    let (_child, pids) = start(script, &mark, 1).await;
    run(Cursor::new(format!("={mark}\n"))).expect("the guard runs");
    assert_gone(&pids);
}

#[tokio::test]
async fn the_guard_starts_with_the_first_program_and_is_told_of_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let seen = dir.path().join("seen");
    let guard = Guard::new("sh", ["-c".into(), format!("cat > {}", seen.display())]);
    let spawn = guard.mark(Spawn::new("true")).expect("the guard starts");
    let mut child = spawn.spawn().expect("the program starts");
    let pid = child.pid();
    guard.watch(pid);
    child.wait().await.expect("the program ends");
    guard.forget(pid);
    let expected = format!("={}\n+{pid}\n-{pid}\n", guard.0.mark);
    let wait = async {
        while std::fs::read_to_string(&seen).unwrap_or_default() != expected {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_mins(1), wait).await.expect("the guard is told");
}
