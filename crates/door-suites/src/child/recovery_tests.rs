use super::*;

const RULES: RecoveryRules = RecoveryRules {
    first: Duration::from_millis(200),
    most: Duration::from_secs(5),
    failures: 3,
    open: Duration::from_secs(30),
    healthy: Duration::from_secs(10),
};

fn failed(recovery: &mut Recovery, now: Instant) {
    recovery.start_failed(&RULES, now, 1.0, "it ended".to_owned());
}

#[tokio::test]
async fn backoff_doubles_until_circuit_opens() {
    let (mut recovery, now) = (Recovery::default(), Instant::now());
    assert_eq!(recovery.gate(&RULES, now), Gate::After(Duration::ZERO));
    failed(&mut recovery, now);
    assert_eq!(recovery.gate(&RULES, now), Gate::After(Duration::from_millis(200)));
    failed(&mut recovery, now);
    assert_eq!(recovery.gate(&RULES, now), Gate::After(Duration::from_millis(400)));
    failed(&mut recovery, now);
    assert_eq!(recovery.gate(&RULES, now), Gate::Shut { failures: 3, retry_in: RULES.open });
    assert_eq!(recovery.waits(now), Some((RULES.open, "it ended")));
    let later = now + RULES.open;
    assert_eq!(recovery.gate(&RULES, later), Gate::Probe);
    failed(&mut recovery, later);
    assert_eq!(recovery.gate(&RULES, later), Gate::Shut { failures: 4, retry_in: RULES.open });
    recovery.started();
    assert_eq!(recovery.gate(&RULES, later), Gate::After(Duration::ZERO));
}

#[tokio::test]
async fn backoff_after_crashes_is_bounded() {
    let (mut recovery, now) = (Recovery::default(), Instant::now());
    let crash = |recovery: &mut Recovery, ran| {
        recovery.crashed(&RULES, now, ran, 0.0, "it ended".to_owned());
        recovery.gate(&RULES, now)
    };
    assert_eq!(crash(&mut recovery, Duration::ZERO), Gate::After(Duration::from_millis(100)));
    assert_eq!(crash(&mut recovery, Duration::ZERO), Gate::After(Duration::from_millis(200)));
    for _ in 0..20 {
        crash(&mut recovery, Duration::ZERO);
    }
    assert_eq!(crash(&mut recovery, Duration::ZERO), Gate::After(Duration::from_millis(2500)));
    assert_eq!(crash(&mut recovery, RULES.healthy), Gate::After(Duration::from_millis(100)));
}
