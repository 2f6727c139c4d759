use super::*;
use crate::commands::hook::Client;

fn entries(agent: &str) -> Entries {
    let (client, program) = (Client::Codex, "/opt/switchboard".into());
    Entries { client, program, agent: Some(agent.to_owned()), renames: false }
}

const THEIRS: &str = "# mine\nmodel = \"gpt\"\n\n[mcp_servers.other] # another\ncommand = \"x\"\n";

#[test]
fn a_server_comes_and_goes_and_everything_else_stays() {
    let with = put_server(THEIRS, &entries("codex")).unwrap().unwrap();
    assert!(with.starts_with(THEIRS), "{with}");
    assert_eq!(agent(&with).unwrap().as_deref(), Some("codex"));
    assert_eq!(put_server(&with, &entries("codex")).unwrap(), None, "a second time changes nothing");
    assert_eq!(put_server(&with, &entries("another")).unwrap(), None, "it keeps its name");
    let renamed = put_server(&with, &Entries { renames: true, ..entries("another") }).unwrap().unwrap();
    assert_eq!(agent(&renamed).unwrap().as_deref(), Some("another"));
    assert_eq!(take_server(&renamed).unwrap().as_deref(), Some(THEIRS));
    assert_eq!(take_server(THEIRS).unwrap(), None);
    let alone = put_server("", &entries("codex")).unwrap().unwrap();
    assert!(alone.starts_with("[mcp_servers.switchboard]\ncommand = \"/opt/switchboard\"\n"), "{alone}");
    assert_eq!(take_server(&alone).unwrap().as_deref(), Some(""));
}

#[test]
fn a_server_of_ours_without_a_name_gets_one() {
    let unnamed = "[mcp_servers.switchboard]\ncommand = \"/opt/switchboard\"\nargs = [\"mcp\"]\n";
    let named = put_server(unnamed, &entries("codex")).unwrap().unwrap();
    assert!(named.starts_with(unnamed), "{named}");
    assert_eq!(agent(&named).unwrap().as_deref(), Some("codex"));
}

#[test]
fn what_is_not_understood_is_left_alone() {
    for (text, problem) in [
        ("= 1", "is no TOML"),
        ("mcp_servers = 1", "'mcp_servers' is no table"),
        ("[mcp_servers.switchboard]\ncommand = \"npx\"\n", "another server"),
    ] {
        let error = put_server(text, &entries("codex")).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
}
