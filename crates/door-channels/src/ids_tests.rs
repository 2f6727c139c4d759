use super::*;

#[test]
fn protocol_examples_are_message_names() {
    for name in [
        "msg-20260111-163315-claude-4c78.json",
        "msg-20260111-163321-codex-9099.json",
        "msg-20260111-163326-supervisor-4e99.json",
        "msg-20260111-155709-qc-1-b4f6.json",
    ] {
        assert_eq!(id_of_file(name), name.strip_suffix(".json"), "{name}");
    }
    for name in [
        ".tmp-1-2",
        "msg-x.json.tmp",
        "note.json",
        "msg-../x.json",
        "msg-a b.json",
        ".seq-codex",
        "msg-a..b.json",
    ] {
        assert_eq!(id_of_file(name), None, "{name}");
    }
}

#[test]
fn id_has_second_agent_and_four_digits() {
    let second = "2026-01-11T15:57:09Z".parse::<Timestamp>().unwrap().as_second();
    let name = MessageName { second, agent: "qc-1".into(), number: 0xb4f6 };
    assert_eq!(name.id(), "msg-20260111-155709-qc-1-b4f6");
    assert_eq!(MessageName { number: 7, ..name }.id(), "msg-20260111-155709-qc-1-0007");
}

#[test]
fn names_of_other_doors_fit_file_names() {
    for (agent, part) in [
        ("codex", "codex"),
        ("Claude Code", "Claude-Code"),
        ("alice@research", "alice-research"),
        ("v1.2", "v1-2"),
        ("7of9", "agent-7of9"),
    ] {
        let part_of = in_file_name(&agent.parse().unwrap());
        assert_eq!(part_of, part);
        assert!(is_agent_id(&part_of));
    }
}

#[test]
fn deprecated_ids_map_to_current_ones() {
    for (old, new) in [("claude-1", "claude"), ("codex-1", "codex"), ("gemini-1", "gemini"), ("qc-1", "qc-1")]
    {
        assert_eq!(current_id(old), new);
        assert_eq!(is_deprecated(old), old != new);
    }
}

#[test]
fn file_name_matches_agent_of_any_hub() {
    assert_eq!(agent_of("msg-20260111-163315-qc-1-0a0b"), Some("qc-1"));
    assert_eq!(number_of("msg-20260111-163315-qc-1-0a0b"), Some(0x0a0b));
    assert_eq!(agent_of("msg-1"), None);
    for (named, agent, expected) in [
        ("codex", "codex", true),
        ("Codex", "codex", true),
        ("codex", "codex@lab", true),
        ("codex-lab", "codex@lab", true),
        ("claude-1", "claude", true),
        ("codex", "supervisor", false),
    ] {
        assert_eq!(is_named_after(named, &agent.parse().unwrap()), expected, "{named} {agent}");
    }
}
