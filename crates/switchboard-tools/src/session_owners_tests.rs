use super::*;
use crate::test_workspace::{TestWorkspace, agent};

#[tokio::test]
async fn only_sessions_without_reported_end_are_replaced() {
    let workspace = TestWorkspace::new().await;
    let owners = SessionOwners::without_idle_timeout(workspace.workspace.hub().clone());
    let (first, second) = (owners.new_session(), owners.new_session());
    let (stays, silent) = (agent("stays"), agent("silent"));
    owners.acquire(&stays, first, true, None).unwrap().unwrap();
    owners.acquire(&silent, first, false, None).unwrap().unwrap();
    assert!(matches!(
        owners.acquire(&stays, second, true, None).unwrap(),
        Err(OwnerConflict::Session { .. })
    ));
    owners.acquire(&silent, second, true, None).unwrap().unwrap();
    assert!(!owners.start_call(&silent, first), "it has another one now");
    owners.release(&stays, first);
    owners.acquire(&stays, second, true, None).unwrap().unwrap();
}

#[tokio::test]
async fn busy_session_is_not_idle() {
    let workspace = TestWorkspace::new().await;
    let owners = SessionOwners::without_idle_timeout(workspace.workspace.hub().clone());
    let (first, second) = (owners.new_session(), owners.new_session());
    let codex = agent("codex");
    owners.acquire(&codex, first, false, None).unwrap().unwrap();
    assert!(owners.start_call(&codex, first));
    assert!(matches!(
        owners.acquire(&codex, second, false, None).unwrap(),
        Err(OwnerConflict::Session { .. })
    ));
    owners.end_call(&codex, first);
    owners.acquire(&codex, second, false, None).unwrap().unwrap();
}

#[tokio::test]
async fn session_takes_its_agent_from_stopped_process() {
    let workspace = TestWorkspace::new().await;
    let hub = workspace.workspace.hub();
    // Each has its own locks, like two processes.
    let (stopped, alone) = (SessionOwners::new(hub.clone()), SessionOwners::new(hub.clone()));
    let (before, after) = (stopped.new_session(), alone.new_session());
    let key = |digit: &str| Some(digit.repeat(32).parse::<LeaseKey>().unwrap());
    let codex = agent("codex");
    stopped.acquire(&codex, before, true, key("a").as_ref()).unwrap().unwrap();
    for other in [None, key("b")] {
        assert!(matches!(
            alone.acquire(&codex, after, true, other.as_ref()).unwrap(),
            Err(OwnerConflict::Process { .. })
        ));
    }
    assert!(stopped.start_call(&codex, before) && stopped.is_held_by(&codex, before));
    alone.acquire(&codex, after, true, key("a").as_ref()).unwrap().unwrap();
    // Once continued, the process finds that it no longer owns the agent.
    assert!(!stopped.start_call(&codex, before) && !stopped.is_held_by(&codex, before));
    assert!(alone.start_call(&codex, after) && alone.is_held_by(&codex, after));
    let next = stopped.new_session();
    assert!(matches!(stopped.acquire(&codex, next, true, None).unwrap(), Err(OwnerConflict::Process { .. })));
    stopped.release(&codex, before);
    assert!(alone.is_held_by(&codex, after));
    alone.release(&codex, after);
    stopped.acquire(&codex, next, true, None).unwrap().unwrap();
}
