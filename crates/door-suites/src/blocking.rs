//! Processor work that would block the threads of all clients.

/// Runs work on a thread that may be busy, such as ranking thousands of tools.
pub(crate) async fn run_blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and with it the caller.
            Err(_) => std::future::pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::run_blocking;

    #[tokio::test]
    async fn work_leaves_the_async_thread() {
        let id = || thread::current().id();
        assert_ne!(run_blocking(id).await, id());
    }
}
