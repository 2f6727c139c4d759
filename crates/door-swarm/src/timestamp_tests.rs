use super::*;

#[test]
fn canonical_form_round_trips() {
    for text in ["2026-02-05T14:30:00.000Z", "2026-12-31T23:59:59.001Z"] {
        assert_eq!(render(parse(text).unwrap()), text);
    }
    assert_eq!(render("2026-02-05T14:30:00.123999Z".parse().unwrap()), "2026-02-05T14:30:00.123Z");
    for text in ["2026-02-05T14:30:00Z", "2026-02-05T14:30:00.5Z", "2026-02-05T14:30:00+00:00"] {
        assert!(parse(text).is_some(), "{text}");
    }
}

/// Other time zones, leap seconds, hour 24.
#[test]
fn other_forms_are_refused() {
    for text in [
        "",
        "2026-02-05",
        "2026-02-05T14:30:00",
        "2026-02-05T14:30:00+02:00",
        "2026-02-05T24:00:00Z",
        "2026-02-05T23:59:60Z",
        "2026-02-30T10:00:00Z",
        "2026-02-05 14:30:00Z",
        "2026-02-05T14:30:00.Z",
        "2026-02-05T14:30:0٠Z",
        "2026-02-05T14:30:00.1234567890Z",
        "x026-02-05T14:30:00Z",
        "2026-02-05T14:30:00.000Z ",
    ] {
        assert_eq!(parse(text), None, "{text:?}");
    }
}
