//! Errors of the command line itself.

use insta::assert_snapshot;

use crate::{bare, workspace};

#[test]
fn invalid_command_line_is_a_usage_error() {
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
    error: invalid value 'many' for '--limit <N>': it is not a whole number

    For more information, try '--help'.
    ");
    assert_snapshot!(sandbox.show(["send", "codex", "x", "--timeout", "3s"]), @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      --wait

    Usage: switchboard send --wait --timeout <DURATION> <TO> <TEXT>

    For more information, try '--help'.
    ");
}

#[test]
fn json_usage_error_is_an_object() {
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
    {"error":{"code":"usage","hint":"see `switchboard --help`","message":"invalid value 'many' for '--limit <N>': it is not a whole number"}}
    "#);
}

#[test]
fn duration_without_unit_is_refused() {
    let sandbox = workspace();
    for args in [
        &["wait", "--timeout", "30"][..],
        &["send", "codex", "x", "--wait", "--timeout", "30"],
        &["send", "codex", "x", "--ttl", "30"],
        &["claim", "T", "--for", "30"],
        &["renew", "T", "1", "--for", "30"],
        &["reserve", "src/", "--for", "30"],
        &["watch", "--agent", "codex", "--channel", "c", "--timeout", "30", "--", "true"],
        &["watch", "--agent", "codex", "--channel", "c", "--max-age", "30", "--", "true"],
        &["channel", "archive", "c", "--older-than", "30"],
        &["worker", "launch", "--agent", "echo", "--timeout", "30"],
        &["swarm", "invite", "--expires", "30"],
    ] {
        let ran = sandbox.run(args);
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
        assert!(ran.stderr.contains("'30' has no unit; write 30s, 15m, 8h or 2d"), "{args:?}: {ran:?}");
    }
    let hook = sandbox.run(["hook", "claude", "idle", "--timeout", "30"]);
    assert!(hook.code == Some(1) && hook.stderr.contains("'30' has no unit"), "{hook:?}");
}

#[test]
fn help_groups_verbs_under_headings() {
    let sandbox = bare();
    assert_snapshot!(sandbox.show(["-h"]), @"
    exit 0
    --- stdout
    Let AI coding agents of different vendors exchange messages and share work

    Usage: switchboard [OPTIONS] <COMMAND>

    Talk:
      send         Send a message to an agent, a team, a channel or everyone
      inbox        Read a mailbox, oldest message first
      wait         Wait until an unseen message arrives, and print it
      ack          Acknowledge messages: move them to the archive and notify their senders
      receipt      Show the delivery status of a message, for each recipient
      thread       Show a whole conversation
      search       Search messages by their words
      tail         Show the newest messages of all agents, and follow new ones
      channel      Post to channels, read them and archive old messages
      watch        Run a program that answers the messages to an agent in a channel

    See:
      who          Show which agents are awake
      agents       List, register, rename or remove agents, or set an agent's role or status
      route        Explain where a message to an address would go, and why

    Work:
      claim        Claim a task so that no other agent takes it, or list claims
      renew        Extend your claim on a task
      release      Release your claim on a task
      reserve      Reserve files you are editing, or list reservations
      guard        Check that staged files are not reserved by another agent; installs as a Git hook
      team         Create teams, add or remove members, and message each member
      workflow     Run a workflow, whose phases each need evidence to complete

    Tools:
      suite        Add, trust and use MCP servers, each exposed as one tool

    Run agents:
      run          Run an agent's program in this terminal so that messages can be typed into it
      worker       Run agents as worker processes, prompt them and follow their output
      router       Let a program drive workers over NDJSON on stdin or a socket

    Other owners:
      swarm        Exchange signed messages with agents of other owners

    Setup:
      init         Create a workspace in this folder, and import the MCP servers of `.mcp.json`
      install      Add Switchboard's MCP server and hooks to the settings of clients
      uninstall    Remove from clients' settings what `install` added
      mcp          Serve MCP on stdin and stdout, for an agent's client
      serve        Run the workspace's server: MCP over HTTP, deliveries, retries and repair
      hook         Show new messages to an agent's model; called by the hooks of its client
      doctor       Check files, database, permissions and locks, and repair them with --fix
      audit        Verify the journal's chain of hashes, or export the journal
      adopt        Adopt a database from another machine or a backup, after showing whose messages it holds
      resume       List messages stopped by loop limits or budgets, or deliver them
      completions  Print a completion script for your shell

    Global options:
          --json                Print one JSON object per line on stdout instead of text
          --from <NAME>         Act as this agent [default: $SWITCHBOARD_AGENT_NAME, or `human`]
          --workspace <FOLDER>  Use the workspace in this folder [default: $SWITCHBOARD_WORKSPACE_ROOT,
                                or the nearest parent folder with `.switchboard/`]
      -v, --verbose...          Log more on stderr; twice for debug messages
      -h, --help                Print help (see more with '--help')
      -V, --version             Print version

    Addresses:  codex · team:backend · #general · alice@research · all@research · job:7/0 · all
    Durations:  90s · 15m · 8h · 2d
    Exit codes: 0 ok · 1 failed · 2 usage · 3 temporary, try again · 4 not allowed · 5 not found

    `switchboard COMMAND --help` shows the options of a command, with examples.
    ");
}

#[test]
fn verb_help_has_examples_and_one_line_of_global_options() {
    let sandbox = bare();
    assert_snapshot!(sandbox.show(["claim", "-h"]), @"
    exit 0
    --- stdout
    Claim a task so that no other agent takes it, or list claims

    Usage: switchboard claim [OPTIONS] [TASK]

    Arguments:
      [TASK]  The task: a ticket, a word or a sentence [default: list all claims]

    Options:
          --for <DURATION>  Let the claim expire after this long unless you renew it [default: 10m; at
                            most 24h]
          --note <TEXT>     Add a note; other agents see it
          --everywhere      Claim the task across all hubs linked over NATS, not only in this workspace;
                            needs a running `switchboard serve`
          --check <NUMBER>  Check whether your claim with this fence number is still in force
      -h, --help            Print help (see more with '--help')

    Global options: --json, --from NAME, --workspace FOLDER, -v (see `switchboard --help`)
    ");
    assert_snapshot!(sandbox.show(["claim", "--help"]), @"
    exit 0
    --- stdout
    Claim a task so that no other agent takes it, or list claims.

    A task has at most one active claim. Each claim has a fence number, which is higher than that of
    every earlier claim on the task. Pass the number with your work on the task (`switchboard send
    --claim TASK:NUMBER`, `switchboard claim TASK --check NUMBER`): after the claim has ended, that is
    refused.

    Usage: switchboard claim [OPTIONS] [TASK]

    Arguments:
      [TASK]
              The task: a ticket, a word or a sentence [default: list all claims]

    Options:
          --for <DURATION>
              Let the claim expire after this long unless you renew it [default: 10m; at most 24h]

          --note <TEXT>
              Add a note; other agents see it

          --everywhere
              Claim the task across all hubs linked over NATS, not only in this workspace; needs a
              running `switchboard serve`

          --check <NUMBER>
              Check whether your claim with this fence number is still in force

      -h, --help
              Print help (see a summary with '-h')

    Examples:
      switchboard claim  # lists all claims
      switchboard claim TICKET-7 --for 2h --note 'on branch parser'
      switchboard claim TICKET-7 --check 3

    Global options: --json, --from NAME, --workspace FOLDER, -v (see `switchboard --help`)
    ");
    assert_snapshot!(sandbox.show(["init", "-h"]), @"
    exit 0
    --- stdout
    Create a workspace in this folder, and import the MCP servers of `.mcp.json`

    Usage: switchboard init [OPTIONS] [AGENT]...

    Arguments:
      [AGENT]...  Agents to register

    Options:
          --no-import      Do not import the servers of `.mcp.json`
          --from <CLIENT>  Import the servers of a client as well: claude-code, claude-desktop, cursor,
                           vscode, codex, gemini, windsurf or zed; its settings are only read
          --file <FILE>    Read the settings of that client from this file
      -y, --yes            Trust every imported server without asking
      -h, --help           Print help (see more with '--help')

    Global options: --json, --workspace FOLDER, -v (see `switchboard --help`)
    ");
}

#[test]
fn help_and_version_exit_zero() {
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
fn closed_reader_ends_program_quietly() {
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
