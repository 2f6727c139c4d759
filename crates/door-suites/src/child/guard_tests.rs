//! A host that is killed takes its children with it, whenever it is killed.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use switchboard_sys::platform::processes_with_variable;
use switchboard_sys::process::Spawn;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::test_child::{until, within};

/// Beside the test binary, in `examples`: Cargo builds it with the tests.
fn host() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("it is in a target folder");
    target.join("examples").join("suite_host")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_host_that_is_killed_leaves_no_child_behind() {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/children/stubborn.sh");
    for round in 0..10_u32 {
        let run = format!("{:016x}", fastrand::u64(..));
        let spawn = Spawn::new(host()).args([script.as_os_str(), run.as_ref()]).stdout(Stdio::piped());
        let mut host = spawn.spawn().expect("the host starts");
        let mut lines = BufReader::new(host.take_stdout().expect("stdout is piped")).lines();
        let run = format!("RUN={run}");
        let ready = within(lines.next_line());
        if round % 2 == 0 {
            // When all are there.
            assert_eq!(ready.await.expect("stdout is readable").as_deref(), Some("ready"));
            // The script, and what it waits in; what left the group; and what is in it: at least four each.
            assert!(processes_with_variable(&run).len() >= 20);
        } else {
            // In the middle of the start.
            let _ = tokio::time::timeout(Duration::from_millis(u64::from(round) * 5), ready).await;
        }
        // It is killed without a word.
        drop(host);
        until(|| processes_with_variable(&run).is_empty()).await;
    }
}
