use super::*;

#[test]
fn task_name_has_length_and_no_controls() {
    for good in ["T-1", " fix the login ", "Ümläut", &"x".repeat(200)] {
        assert_eq!(TaskName::parse(good).unwrap().as_str(), good.trim());
    }
    for bad in ["", "  ", "a\nb", "a\u{1b}[0m", &"x".repeat(201)] {
        assert!(TaskName::parse(bad).is_err(), "{bad:?}");
    }
    assert_eq!(TaskName::parse("Fix Login"), TaskName::parse("fix login"));
    assert_ne!(TaskName::parse("a"), TaskName::parse("b"));
}
