use super::*;
use crate::test_workspace::{TestWorkspace, agent};

#[tokio::test]
async fn only_a_session_that_does_not_tell_its_end_is_taken_over() {
    let workspace = TestWorkspace::new(&[]).await;
    let claims = Claims::impatient(workspace.workspace.hub().clone());
    let (first, second) = (claims.new_session(), claims.new_session());
    let (stays, silent) = (agent("stays"), agent("silent"));
    claims.take(&stays, first, true, None).unwrap().unwrap();
    claims.take(&silent, first, false, None).unwrap().unwrap();
    assert!(matches!(claims.take(&stays, second, true, None).unwrap(), Err(Taken::Session { .. })));
    claims.take(&silent, second, true, None).unwrap().unwrap();
    assert!(!claims.begin(&silent, first), "it has another one now");
    claims.release(&stays, first);
    claims.take(&stays, second, true, None).unwrap().unwrap();
}

#[tokio::test]
async fn a_session_that_is_at_work_is_not_silent() {
    let workspace = TestWorkspace::new(&[]).await;
    let claims = Claims::impatient(workspace.workspace.hub().clone());
    let (first, second) = (claims.new_session(), claims.new_session());
    let codex = agent("codex");
    claims.take(&codex, first, false, None).unwrap().unwrap();
    assert!(claims.begin(&codex, first));
    assert!(matches!(claims.take(&codex, second, false, None).unwrap(), Err(Taken::Session { .. })));
    claims.end(&codex, first);
    claims.take(&codex, second, false, None).unwrap().unwrap();
}
