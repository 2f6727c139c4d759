use super::*;
use crate::test_workspace::{TestWorkspace, agent};

#[tokio::test]
async fn only_a_session_that_does_not_tell_its_end_is_taken_over() {
    let workspace = TestWorkspace::new(&[]).await;
    let owners = SessionOwners::impatient(workspace.workspace.hub().clone());
    let (first, second) = (owners.new_session(), owners.new_session());
    let (stays, silent) = (agent("stays"), agent("silent"));
    owners.take(&stays, first, true, None).unwrap().unwrap();
    owners.take(&silent, first, false, None).unwrap().unwrap();
    assert!(matches!(owners.take(&stays, second, true, None).unwrap(), Err(Taken::Session { .. })));
    owners.take(&silent, second, true, None).unwrap().unwrap();
    assert!(!owners.begin(&silent, first), "it has another one now");
    owners.release(&stays, first);
    owners.take(&stays, second, true, None).unwrap().unwrap();
}

#[tokio::test]
async fn a_session_that_is_at_work_is_not_silent() {
    let workspace = TestWorkspace::new(&[]).await;
    let owners = SessionOwners::impatient(workspace.workspace.hub().clone());
    let (first, second) = (owners.new_session(), owners.new_session());
    let codex = agent("codex");
    owners.take(&codex, first, false, None).unwrap().unwrap();
    assert!(owners.begin(&codex, first));
    assert!(matches!(owners.take(&codex, second, false, None).unwrap(), Err(Taken::Session { .. })));
    owners.end(&codex, first);
    owners.take(&codex, second, false, None).unwrap().unwrap();
}

#[tokio::test]
async fn session_takes_its_agent_over_from_a_stopped_process() {
    let workspace = TestWorkspace::new(&[]).await;
    let hub = workspace.workspace.hub();
    // Each has its own locks, as two processes have.
    let (stopped, alone) = (SessionOwners::new(hub.clone()), SessionOwners::new(hub.clone()));
    let (before, after) = (stopped.new_session(), alone.new_session());
    let key = |digit: &str| Some(digit.repeat(32).parse::<LeaseKey>().unwrap());
    let codex = agent("codex");
    stopped.take(&codex, before, true, key("a").as_ref()).unwrap().unwrap();
    for other in [None, key("b")] {
        assert!(matches!(
            alone.take(&codex, after, true, other.as_ref()).unwrap(),
            Err(Taken::Process { .. })
        ));
    }
    assert!(stopped.begin(&codex, before) && stopped.is_held_by(&codex, before));
    alone.take(&codex, after, true, key("a").as_ref()).unwrap().unwrap();
    // Once continued, the process finds that it no longer has the agent.
    assert!(!stopped.begin(&codex, before) && !stopped.is_held_by(&codex, before));
    assert!(alone.begin(&codex, after) && alone.is_held_by(&codex, after));
    let next = stopped.new_session();
    assert!(matches!(stopped.take(&codex, next, true, None).unwrap(), Err(Taken::Process { .. })));
    stopped.release(&codex, before);
    assert!(alone.is_held_by(&codex, after));
    alone.release(&codex, after);
    stopped.take(&codex, next, true, None).unwrap().unwrap();
}
