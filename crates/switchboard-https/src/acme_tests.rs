use super::*;

fn settings() -> Acme {
    Acme::new(Vec::new(), std::path::PathBuf::new())
}

#[test]
fn renewal_is_due_after_two_thirds() {
    let certificate = |from: &str, until: &str| Certificate {
        names: Vec::new(),
        not_before: from.parse().unwrap(),
        not_after: until.parse().unwrap(),
        serial: String::new(),
    };
    for (from, until, expected) in [
        ("2026-01-01T00:00:00Z", "2026-04-01T00:00:00Z", "2026-03-02T00:00:00Z"),
        ("2026-01-01T00:00:00Z", "2026-01-07T00:00:00Z", "2026-01-05T00:00:00Z"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"),
    ] {
        assert_eq!(renewal_time(&certificate(from, until)), expected.parse().unwrap(), "{from} to {until}");
    }
}

#[test]
fn retry_delay_doubles_up_to_maximum() {
    let near = |failures, expected: Duration| {
        let retry_delay = retry_delay(&settings(), failures);
        assert!(
            retry_delay >= expected.mul_f64(0.9) && retry_delay <= expected.mul_f64(1.1),
            "{failures}: {retry_delay:?}, not {expected:?}"
        );
    };
    near(1, Duration::from_mins(5));
    near(2, Duration::from_mins(10));
    near(5, Duration::from_mins(80));
    near(8, MAX_RETRY_DELAY);
    near(u32::MAX, MAX_RETRY_DELAY);
}
