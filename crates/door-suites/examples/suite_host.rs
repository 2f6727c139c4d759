//! Host with five unresponsive children guarded by reapers, made to be killed: `suite_host SCRIPT MARK`.
//!
//! As `suite_host reap` it is the reaper. Used by the reaper test, and can be run by hand: no process with `RUN=MARK`
//! in its environment may survive, whenever and however the host is killed.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use door_suites::{Caller, Child, ChildOptions, ChildSpec, Expose, Framing, Launch, Limits};
use switchboard_sys::reaper;
use switchboard_sys::reaper::ReaperClient;

/// Children to start: enough for a kill to hit some in each state.
const CHILDREN: usize = 5;

#[expect(clippy::print_stdout, reason = "the test waits for this line")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (first, mark) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    if first == "reap" {
        let stdin = std::io::stdin().as_fd().try_clone_to_owned()?;
        return Ok(reaper::run(stdin).await?);
    }
    let guard = ReaperClient::new(std::env::current_exe()?, ["reap"]);
    let children: Vec<Child> = (0..CHILDREN)
        .map(|number| {
            let launch = Launch::Stdio {
                command: "sh".to_owned(),
                args: vec![first.clone()],
                env: BTreeMap::from([("RUN".to_owned(), mark.clone())]),
                cwd: PathBuf::from("/"),
                framing: Framing::Newline,
            };
            let spec = ChildSpec {
                name: format!("child-{number}"),
                description: None,
                switchboard_description: None,
                file: PathBuf::from("none"),
                launch,
                unready: None,
                limits: Limits::default(),
                expose: Expose::default(),
                template: door_suites::LaunchTemplate::default(),
            };
            let options = ChildOptions { guard: Some(guard.clone()), ..ChildOptions::default() };
            Child::with_options(Arc::new(spec), options)
        })
        .collect();
    let caller = Caller::default();
    for opened in futures_util::future::join_all(children.iter().map(|child| child.open(&caller))).await {
        opened?;
    }
    println!("ready");
    std::future::pending::<()>().await;
    Ok(())
}
