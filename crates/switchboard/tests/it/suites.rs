//! Suites from outside: the built binary in front of real MCP servers, as clients and people use them.

mod client_requests;
mod crowd;
mod first_use;
mod isolation;
mod orphans;
mod real;
mod reaper;
mod remote;
mod telemetry;
mod tokens;

use std::path::PathBuf;

use serde_json::{Value, json};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, tools};

use crate::BINARY;

/// Creates a workspace without agents.
fn sandbox() -> Sandbox {
    Sandbox::with_agents(BINARY, &[])
}

/// Raises the start timeout of servers: Node and Python start slowly on a busy machine.
fn raise_timeouts(sandbox: &Sandbox) {
    let config = json!({ "timeouts": { "childSpawnMs": 60_000 } });
    test_support::files::put(sandbox.path().join("switchboard.config.json"), config.to_string());
}

/// Adds a server to a workspace, as a person does.
fn add(sandbox: &Sandbox, name: &str, command: &[String]) {
    let mut args = vec!["suite", "add", name, "--"];
    args.extend(command.iter().map(String::as_str));
    sandbox.ok(args);
}

/// Starts `switchboard mcp` for a client.
fn client(sandbox: &Sandbox) -> Client {
    Client::stdio(Running::start_with_stdin(&mut sandbox.session(["mcp"])))
}

/// Builds a call of a suite's tool.
fn call(subtool: &str, args: Value) -> Value {
    json!({ "action": "call", "subtool": subtool, "args": args })
}

/// Returns the command of a fixture of the suite crate: a small server in Python.
fn fixture(name: &str) -> Vec<String> {
    let file = format!("{}/../door-suites/fixtures/children/{name}", env!("CARGO_MANIFEST_DIR"));
    vec!["python3".to_owned(), file]
}

/// Returns the command that starts an official server from npm.
fn npm(name: &str, args: &[&str]) -> Result<Vec<String>, String> {
    let package = format!("@modelcontextprotocol/server-{name}");
    let program = tools::installed(&format!("npm/{package}"))?
        .join("node_modules")
        .join(&package)
        .join("dist/index.js");
    Ok(command(
        tools::node()?,
        [program.display().to_string()].iter().map(String::as_str).chain(args.iter().copied()),
    ))
}

/// Returns the command that starts an official server from PyPI.
fn pypi(name: &str, args: &[&str]) -> Result<Vec<String>, String> {
    let program = tools::installed(&format!("pypi/{name}"))?.join("bin").join(name);
    Ok(command(program, args.iter().copied()))
}

fn command<'a>(program: PathBuf, args: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    std::iter::once(program.display().to_string()).chain(args.into_iter().map(str::to_owned)).collect()
}
