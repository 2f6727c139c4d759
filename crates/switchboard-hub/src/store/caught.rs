//! A panic of one job must not end the writer: everybody else would wait for nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs a transaction; a panic in it is an error like one of the database, after which the connection is reopened.
pub(crate) fn caught<T>(
    work: impl FnOnce() -> Result<T, Arc<rusqlite::Error>>,
) -> Result<T, Arc<rusqlite::Error>> {
    // What the transaction had in hand is dropped: the connection, the directory and the memory are all rebuilt.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a job of the journal's writer panicked; its transaction is undone");
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERNAL);
        Err(Arc::new(rusqlite::Error::SqliteFailure(code, Some("a job panicked".to_owned()))))
    })
}

#[cfg(test)]
mod tests {
    use crate::test_hub::TestHub;

    #[tokio::test]
    async fn d3_panic_of_one_job_leaves_the_writer_at_work() {
        let test = TestHub::with(&["claude", "codex"]).await;
        let before = test.send("claude", "codex", "before").await.id;
        let panicked = test.hub.write::<(), _>(|_| panic!("on purpose")).await;
        assert!(panicked.is_err());
        let after = test.send("claude", "codex", "after").await.id;
        for id in [before, after] {
            assert!(test.hub.message(id).await.unwrap().is_some());
        }
    }
}
