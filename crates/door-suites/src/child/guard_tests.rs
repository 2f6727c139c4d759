//! A killed host takes its children with it, at any time.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use switchboard_sys::platform::processes_with_variable;
use switchboard_sys::process::Spawn;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::test_child::{until, with_timeout};

/// Path of the example binary, which Cargo builds together with the tests.
fn host() -> PathBuf {
    let test = std::env::current_exe().expect("the test has a path");
    let target = test.parent().and_then(|deps| deps.parent()).expect("it is in a target folder");
    target.join("examples").join("suite_host")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn killed_host_leaves_no_child() {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/children/stubborn.sh");
    for round in 0..10_u32 {
        let run = format!("{:016x}", fastrand::u64(..));
        let spawn = Spawn::new(host()).args([script.as_os_str(), run.as_ref()]).stdout(Stdio::piped());
        let mut host = spawn.spawn().expect("the host starts");
        let mut lines = BufReader::new(host.stdout_reader().expect("stdout is piped")).lines();
        let run = format!("RUN={run}");
        let ready = with_timeout(lines.next_line());
        if round % 2 == 0 {
            // Printed once all children run.
            assert_eq!(ready.await.expect("stdout is readable").as_deref(), Some("ready"));
            // Per child: the script, its sleep, a descendant outside the group, and one inside; at least four.
            assert!(processes_with_variable(&run).len() >= 20);
        } else {
            // Kill in the middle of the start.
            let _ = tokio::time::timeout(Duration::from_millis(u64::from(round) * 5), ready).await;
        }
        // Killed without a signal handler.
        drop(host);
        until(|| processes_with_variable(&run).is_empty()).await;
    }
}
