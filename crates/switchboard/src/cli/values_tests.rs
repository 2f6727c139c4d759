use super::*;

#[test]
fn durations_have_units() {
    for (text, seconds) in [
        ("90s", 90.0),
        ("15m", 900.0),
        ("8h", 28_800.0),
        ("2d", 172_800.0),
        ("1h30m", 5_400.0),
        ("1h 30m", 5_400.0),
        ("0.1s", 0.1),
        ("50ms", 0.05),
        ("0s", 0.0),
    ] {
        assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
    }
}

#[test]
fn bad_durations_are_explained() {
    for (text, problem) in [
        ("30", "'30' has no unit; write 30s, 15m, 8h or 2d"),
        ("0.5", "'0.5' has no unit; write 30s, 15m, 8h or 2d"),
        ("1h30", "'1h30' has no unit; write 30s, 15m, 8h or 2d"),
        ("soon", "'soon' is not a duration; write 30s, 15m, 8h or 2d"),
        ("5 years", "'5 years' is not a duration; write 30s, 15m, 8h or 2d"),
        ("-1s", "'-1s' is not a duration; write 30s, 15m, 8h or 2d"),
        ("1.2.3s", "'1.2.3s' is not a duration; write 30s, 15m, 8h or 2d"),
        ("", "'' is empty; write 30s, 15m, 8h or 2d"),
        ("99999d", "'99999d' is longer than a hundred years; write 30s, 15m, 8h or 2d"),
    ] {
        assert_eq!(duration(text), Err(problem.to_owned()), "{text}");
    }
    assert_eq!(nonzero_duration("0s"), Err("'0s' is no time at all; write 30s, 15m, 8h or 2d".to_owned()));
    assert_eq!(lifetime("2m"), Ok(SignedDuration::from_mins(2)));
}

#[test]
fn bad_numbers_are_explained() {
    assert_eq!(number::<usize>("7"), Ok(7));
    assert_eq!(number::<u32>("many"), Err("it is not a whole number".to_owned()));
    assert_eq!(number::<u32>(""), Err("it is not a whole number".to_owned()));
    assert_eq!(number::<u32>("-3"), Err("it must be 0 or more".to_owned()));
    assert_eq!(number::<u16>("70000"), Err("it must be 65535 or less".to_owned()));
    assert_eq!(number::<i64>("-3"), Ok(-3));
}
