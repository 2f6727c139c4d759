use super::*;

fn payload(action: &str, thing: &str) -> Value {
    let body =
        json!({ "number": 123, "title": "It breaks\u{7}", "html_url": "https://github.com/o/r/issues/123" });
    json!({ "action": action, thing: body, "repository": { "full_name": "o/r" },
        "comment": { "html_url": "https://github.com/o/r/issues/123#c1" } })
}

#[test]
fn five_events_become_notifications() {
    let table = [
        ("issues", "opened", "issue", "issue_created", "New issue: #123 It breaks"),
        ("issues", "assigned", "issue", "issue_assigned", "Issue assigned: #123 It breaks"),
        ("issue_comment", "created", "issue", "comment_added", "New comment on: #123 It breaks"),
        ("pull_request", "opened", "pull_request", "pr_opened", "New pull request: #123 It breaks"),
        (
            "pull_request",
            "review_requested",
            "pull_request",
            "review_requested",
            "Review requested for: #123 It breaks",
        ),
    ];
    for (kind, action, thing, expected, text) in table {
        let event = parse_event(kind, &payload(action, thing)).unwrap();
        assert_eq!((event.action, event.text.as_str()), (expected, text));
        assert_eq!(event.reference.number, Some(123));
    }
    assert_eq!(parse_event("issues", &payload("closed", "issue")), None);
    assert_eq!(parse_event("push", &payload("opened", "issue")), None);
    assert_eq!(parse_event("issues", &json!({ "action": "opened" })), None);
}

/// The example in GitHub's own documentation.
#[test]
fn webhook_needs_github_signature() {
    let (secret, body) = ("It's a Secret to Everybody", b"Hello, World!");
    let good = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert!(is_signed(secret, body, good));
    for bad in ["", "75", "zz", &good.replace('7', "8"), &good[..62]] {
        assert!(!is_signed(secret, body, bad), "{bad}");
    }
    assert!(!is_signed("another", body, good));
}
