//! Isolation of panics: a job that panics must not end the writer, because all later jobs would wait forever.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Runs a transaction; a panic counts as a database error, after which the connection is reopened.
pub(crate) fn catch_panic<T>(
    work: impl FnOnce() -> Result<T, Arc<rusqlite::Error>>,
) -> Result<T, Arc<rusqlite::Error>> {
    // Unwind safety: connection, directory and cache are all rebuilt after a panic.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        tracing::error!("a job of the journal's writer panicked; its transaction was rolled back");
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_INTERNAL);
        Err(Arc::new(rusqlite::Error::SqliteFailure(code, Some("a job panicked".to_owned()))))
    })
}

#[cfg(test)]
mod tests {
    use crate::test_hub::TestHub;

    #[tokio::test]
    async fn panic_of_job_does_not_stop_writer() {
        let test = TestHub::with(&["claude", "codex"]).await;
        let before = test.send("claude", "codex", "before").await.id;
        let panicked = test.hub.write::<(), _>(|_| panic!("on purpose")).await;
        assert!(panicked.is_err());
        let after = test.send("claude", "codex", "after").await.id;
        for id in [before, after] {
            assert!(test.hub.journal().message(id).await.unwrap().is_some());
        }
    }
}
