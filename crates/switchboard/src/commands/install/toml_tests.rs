use super::*;
use crate::commands::hook::Client;

fn entries(agent: &str) -> Entries {
    let (client, program) = (Client::Codex, "/opt/switchboard".into());
    Entries { client, program, agent: Some(agent.to_owned()), renames: false }
}

const THEIRS: &str = "# mine\nmodel = \"gpt\"\n\n[mcp_servers.other] # another\ncommand = \"x\"\n";

#[test]
fn server_added_and_removed_without_other_changes() {
    let with = add_server(THEIRS, &entries("codex")).unwrap().unwrap();
    assert!(with.starts_with(THEIRS), "{with}");
    assert_eq!(agent(&with).unwrap().as_deref(), Some("codex"));
    assert_eq!(add_server(&with, &entries("codex")).unwrap(), None, "a second time changes nothing");
    assert_eq!(add_server(&with, &entries("another")).unwrap(), None, "it keeps its name");
    let renamed = add_server(&with, &Entries { renames: true, ..entries("another") }).unwrap().unwrap();
    assert_eq!(agent(&renamed).unwrap().as_deref(), Some("another"));
    assert_eq!(remove_server(&renamed).unwrap().as_deref(), Some(THEIRS));
    assert_eq!(remove_server(THEIRS).unwrap(), None);
    let alone = add_server("", &entries("codex")).unwrap().unwrap();
    assert!(alone.starts_with("[mcp_servers.switchboard]\ncommand = \"/opt/switchboard\"\n"), "{alone}");
    assert_eq!(remove_server(&alone).unwrap().as_deref(), Some(""));
}

#[test]
fn own_server_without_name_gets_one() {
    let unnamed = "[mcp_servers.switchboard]\ncommand = \"/opt/switchboard\"\nargs = [\"mcp\"]\n";
    let named = add_server(unnamed, &entries("codex")).unwrap().unwrap();
    assert!(named.starts_with(unnamed), "{named}");
    assert_eq!(agent(&named).unwrap().as_deref(), Some("codex"));
}

#[test]
fn unknown_toml_is_left_alone() {
    for (text, problem) in [
        ("= 1", "is no TOML"),
        ("mcp_servers = 1", "'mcp_servers' is no table"),
        ("[mcp_servers.switchboard]\ncommand = \"npx\"\n", "another server"),
    ] {
        let error = add_server(text, &entries("codex")).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}
