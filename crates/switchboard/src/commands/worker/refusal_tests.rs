use super::*;

#[test]
fn rejections_name_options_not_fields() {
    for (field, reason, message) in [
        (Some("payload.job_id"), "payload.job_id: no job 'x'", "no job 'x'"),
        (Some("payload.approval_policy"), "payload.approval_policy: leave it out", "--ask: leave it out"),
        (Some("payload.limits.turn_seconds"), "payload.limits.turn_seconds: too few", "--timeout: too few"),
        (Some("payload.content"), "the body has too many bytes", "the body has too many bytes"),
        (None, "no turn runs there", "no turn runs there"),
    ] {
        assert_eq!(refusal("bad_field", field, reason).message, message);
    }
}

#[test]
fn ended_job_is_not_temporary() {
    let failure = refusal("job_over", Some("payload.job_id"), "job 'x' was terminated");
    assert_eq!((failure.code, failure.exit), ("job_over", Exit::Failed));
    assert_eq!(refusal("not_now", None, "no turn runs there").exit, Exit::Temporary);
    assert_eq!(refusal("of a later version", None, "no").code, "rejected");
}
