//! What is wrong with the command line itself.

use insta::assert_snapshot;

use crate::{bare, workspace};

#[test]
fn a_command_line_that_makes_no_sense_is_a_usage_error() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["sned", "codex", "x"]), @"
    exit 2
    --- stderr
    error: unrecognized subcommand 'sned'

      tip: a similar subcommand exists: 'send'

    Usage: switchboard [OPTIONS] <COMMAND>

    For more information, try '--help'.
    ");
    assert_snapshot!(sandbox.show(["send"]), @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      <TO>

    Usage: switchboard send <TO> [TEXT]

    For more information, try '--help'.
    ");
    assert_snapshot!(sandbox.show(["inbox", "--limit", "many"]), @"
    exit 2
    --- stderr
    error: invalid value 'many' for '--limit <N>': invalid digit found in string

    For more information, try '--help'.
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--timeout", "3"]), @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      --wait

    Usage: switchboard send --wait --timeout <S> <TO> <TEXT>

    For more information, try '--help'.
    ");
}

#[test]
fn with_json_it_is_an_error_object_on_stdout() {
    let sandbox = workspace();
    assert_snapshot!(sandbox.show(["sned", "codex", "x", "--json"]), @r#"
    exit 2
    --- stdout
    {"error":{"code":"usage","hint":"a similar subcommand exists: 'send'","message":"unrecognized subcommand 'sned'"}}
    "#);
    assert_snapshot!(sandbox.show(["--json", "send"]), @r#"
    exit 2
    --- stdout
    {"error":{"code":"usage","hint":"see `switchboard --help`","message":"the following required arguments were not provided: <TO>"}}
    "#);
    assert_snapshot!(sandbox.show(["inbox", "--limit", "many", "--json"]), @r#"
    exit 2
    --- stdout
    {"error":{"code":"usage","hint":"see `switchboard --help`","message":"invalid value 'many' for '--limit <N>': invalid digit found in string"}}
    "#);
}

#[test]
fn help_and_version_are_answers() {
    let sandbox = bare();
    let help = sandbox.run(["--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for word in [
        "Exit codes:",
        "Addresses:",
        "SWITCHBOARD_AGENT_NAME",
        "SWITCHBOARD_WORKSPACE_ROOT",
        "send",
        "doctor",
    ] {
        assert!(help.stdout.contains(word), "{word}");
    }
    assert_eq!(sandbox.ok(["--version"]), format!("switchboard {}", env!("CARGO_PKG_VERSION")));
    assert_eq!(sandbox.run(Vec::<String>::new()).code, Some(2));
}

#[test]
fn a_reader_that_goes_away_ends_the_program_quietly() {
    use std::process::Stdio;
    let sandbox = workspace();
    for number in 0..3 {
        sandbox.send("claude", "codex", &format!("{number}").repeat(100_000));
    }
    let mut command = sandbox.command(["inbox", "codex", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
