use super::*;

#[test]
fn own_commands_match_at_any_path() {
    for program in ["/usr/bin/switchboard", "/home/a b/it's here/switchboard"] {
        let (client, agent) = (Client::Claude, Some("a b".to_owned()));
        let entries = Entries { client, program: program.into(), agent, renames: false };
        for (_, hooks) in entries.hooks() {
            for hook in hooks {
                let command = hook["command"].as_str().unwrap();
                assert!(is_ours(command, Client::Claude), "{command}");
                assert!(!is_ours(command, Client::Codex), "{command}");
            }
        }
    }
    for other in
        ["/usr/bin/other hook claude stop", "switchboard serve", "echo switchboard hook claude stop", ""]
    {
        assert!(!is_ours(other, Client::Claude), "{other}");
    }
}
