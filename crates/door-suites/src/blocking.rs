//! Runs CPU-bound work off the async threads.

/// Runs CPU-bound work, such as ranking thousands of tools, on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down, and the caller with it.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::run_blocking;

    #[tokio::test]
    async fn work_runs_off_the_async_thread() {
        let id = || thread::current().id();
        assert_ne!(run_blocking(id).await, id());
    }
}
