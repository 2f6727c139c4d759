//! Execution of CPU-bound work outside the async worker threads.

/// Runs CPU-bound work, such as ranking thousands of tools, on a blocking thread.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The task was cancelled because the runtime is shutting down, so the caller will be dropped as well.
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
