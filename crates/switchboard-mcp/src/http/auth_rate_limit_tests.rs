use super::*;

#[tokio::test(start_paused = true)]
async fn a_few_at_once_then_one_a_second() {
    let guesses = AuthRateLimit::new();
    for _ in 0..BURST {
        assert_eq!(guesses.record_failure(), Ok(()));
    }
    assert_eq!(guesses.record_failure(), Err(1));
    tokio::time::advance(Duration::from_millis(400)).await;
    assert_eq!(guesses.record_failure(), Err(1));
    tokio::time::advance(Duration::from_millis(600)).await;
    assert_eq!(guesses.record_failure(), Ok(()));
    assert_eq!(guesses.record_failure(), Err(1));
}

#[tokio::test(start_paused = true)]
async fn all_are_forgotten_in_time() {
    let guesses = AuthRateLimit::new();
    while guesses.record_failure().is_ok() {}
    tokio::time::advance(REFILL_INTERVAL * BURST).await;
    for _ in 0..BURST {
        assert_eq!(guesses.record_failure(), Ok(()));
    }
}
