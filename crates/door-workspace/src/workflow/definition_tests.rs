use serde_json::{Value, json};

use super::*;

fn least() -> Value {
    json!({ "name": "Least_Of all", "persona": "p", "phases": [{ "id": "a", "instruction": "i" }] })
}

#[test]
fn name_is_normalized() {
    let workflow = Workflow::read(least().to_string().as_bytes()).unwrap();
    assert_eq!(workflow.name, "least-of-all");
    for (text, expected) in
        [(" Handoff_Lead ", "handoff-lead"), ("handoff lead", "handoff-lead"), ("CHAT", "chat")]
    {
        assert_eq!(normalize_name(text), expected);
    }
}

#[test]
fn errors_name_the_field() {
    let cases = [
        ("/name", json!(5), "field 'name': is the number 5, but must be a text in double quotes"),
        (
            "/name",
            json!("a/b"),
            "field 'name': 'a/b' is not a valid name: a name has 1 to 64 letters, digits and '-'",
        ),
        ("/name", json!(""), "field 'name': '' is not a valid name"),
        ("/aliases", json!(["ok", "../x"]), "field 'aliases[1]': '../x' is not a valid name"),
        ("/persona", json!(" "), "field 'persona': is empty"),
        ("/phases", json!([]), "field 'phases': has 0 entries; a workflow has 1 to 50"),
        ("/phases/0/instruction", json!(""), "field 'phases[0].instruction': is empty"),
        ("/phases/0/instruction", json!(null), "field 'phases[0].instruction': is null, but must be"),
        ("/phases/0/requiredTools", json!("x"), "field 'phases[0].requiredTools': is the text"),
        (
            "/phases/0/artifacts",
            json!(["a[", "b"]),
            "field 'phases[0].artifacts[0]': error parsing glob 'a['",
        ),
        (
            "/phases/0/artifacts",
            json!(["/etc/*"]),
            "field 'phases[0].artifacts[0]': '/etc/*' must be a path below",
        ),
        ("/phases/0/artifacts", json!(["a/../../b"]), "must be a path below the workspace"),
        ("/phases/0/evidence", json!("x"), "field 'phases[0].evidence': is unknown"),
        (
            "/routes",
            json!([{ "action": "a b", "to": "lead" }]),
            "field 'routes[0].action': 'a b' is not a kind",
        ),
        (
            "/routes",
            json!([{ "action": "execute", "to": "boss" }]),
            "field 'routes[0].to': role 'boss' is unknown",
        ),
        (
            "/routes",
            json!([{ "action": "execute", "to": "none" }]),
            "field 'routes[0].to': 'none' has no recipient",
        ),
        (
            "/routes",
            json!([{ "action": "execute", "to": "lead", "afterPhase": 2 }]),
            "field 'routes[0].afterPhase': 2 is beyond the last phase, 1",
        ),
    ];
    for (pointer, value, expected) in cases {
        let mut file = least();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        file.pointer_mut(parent).unwrap()[key] = value;
        let error = Workflow::read(file.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{pointer}: {error}");
    }
    let mut twice = least();
    twice["phases"] = json!([{ "id": "a", "instruction": "i" }, { "id": "a", "instruction": "j" }]);
    let error = Workflow::read(twice.to_string().as_bytes()).unwrap_err();
    assert_eq!(error.to_string(), "field 'phases[1].id': 'a' appears twice");
    for text in ["", "{", "[]", "{} {}"] {
        assert!(Workflow::read(text.as_bytes()).is_err(), "{text}");
    }
    let after = format!("{} x", least());
    assert!(
        Workflow::read(after.as_bytes())
            .unwrap_err()
            .to_string()
            .starts_with("field '.': there is more text")
    );
}

#[test]
fn star_does_not_match_a_slash() {
    let pattern = ArtifactPattern::parse("plans/*.md").unwrap();
    for (path, fits) in
        [("plans/a.md", true), ("plans/b/a.md", false), ("plans/a.txt", false), ("a.md", false)]
    {
        assert_eq!(pattern.is_match(path), fits, "{path}");
    }
    assert!(ArtifactPattern::parse("plans/**/*.md").unwrap().is_match("plans/b/c/a.md"));
}

#[test]
fn workflow_round_trips_as_json() {
    for workflow in super::super::library::WorkflowLibrary::built_in().workflows {
        let json = serde_json::to_vec(&workflow).unwrap();
        assert_eq!(Workflow::read(&json).unwrap(), workflow);
    }
}
