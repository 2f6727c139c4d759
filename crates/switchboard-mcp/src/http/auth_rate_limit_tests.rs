use super::*;

#[tokio::test(start_paused = true)]
async fn burst_then_one_per_second() {
    let limit = AuthRateLimit::new();
    for _ in 0..BURST {
        assert_eq!(limit.record_failure(), Ok(()));
    }
    assert_eq!(limit.record_failure(), Err(1));
    tokio::time::advance(Duration::from_millis(400)).await;
    assert_eq!(limit.record_failure(), Err(1));
    tokio::time::advance(Duration::from_millis(600)).await;
    assert_eq!(limit.record_failure(), Ok(()));
    assert_eq!(limit.record_failure(), Err(1));
}

#[tokio::test(start_paused = true)]
async fn limit_recovers_over_time() {
    let limit = AuthRateLimit::new();
    while limit.record_failure().is_ok() {}
    tokio::time::advance(REFILL_INTERVAL * BURST).await;
    for _ in 0..BURST {
        assert_eq!(limit.record_failure(), Ok(()));
    }
}
