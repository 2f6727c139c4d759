use super::*;

#[tokio::test(start_paused = true)]
async fn a_few_at_once_then_one_a_second() {
    let guesses = Guesses::new();
    for _ in 0..AT_ONCE {
        assert_eq!(guesses.count(), Ok(()));
    }
    assert_eq!(guesses.count(), Err(1));
    tokio::time::advance(Duration::from_millis(400)).await;
    assert_eq!(guesses.count(), Err(1));
    tokio::time::advance(Duration::from_millis(600)).await;
    assert_eq!(guesses.count(), Ok(()));
    assert_eq!(guesses.count(), Err(1));
}

#[tokio::test(start_paused = true)]
async fn all_are_forgotten_in_time() {
    let guesses = Guesses::new();
    while guesses.count().is_ok() {}
    tokio::time::advance(ONE_MORE * AT_ONCE).await;
    for _ in 0..AT_ONCE {
        assert_eq!(guesses.count(), Ok(()));
    }
}
