//! The official conformance suite, against the product and against the server with the suite's own tools.
//!
//! docs/conformance.md alone states what must pass: the tests read its table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_support::process::command;
use test_support::{RunOutput, Running, Sandbox, TestServer, tools};

use super::token_proxy::TokenProxy;
use crate::{BINARY, workspace};

const TABLE: &str = include_str!("../../../../../docs/conformance.md");

/// The protocol revisions that the suite tests.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];

/// Expected outcome of a scenario, from the table.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// All its checks pass, except this number, which need a tool of the suite's own server.
    Passes {
        but: usize,
    },
    DoesNotApply,
}

/// The suite, and the Node that runs it.
struct Suite {
    node: PathBuf,
    program: PathBuf,
}

impl Suite {
    fn find() -> Result<Self, String> {
        Self::installed("@modelcontextprotocol/conformance")
    }

    /// Returns the last released suite, which tests no revision after 2025-11-25.
    fn released() -> Result<Self, String> {
        Self::installed("conformance-released")
    }

    fn installed(package: &str) -> Result<Self, String> {
        let folder = tools::installed(&format!("npm/{package}"))?.join("node_modules").join(package);
        Ok(Self { node: tools::node()?, program: folder.join("dist/index.js") })
    }

    /// Runs all requirements of a revision; returns passed and failed checks by scenario.
    fn run(&self, port: u16, revision: &str) -> BTreeMap<String, (usize, usize)> {
        self.run_with(port, &["--requirements", revision])
    }

    fn run_with(&self, port: u16, args: &[&str]) -> BTreeMap<String, (usize, usize)> {
        let url = format!("http://127.0.0.1:{port}/mcp");
        let mut suite = command(&self.node);
        suite.arg(&self.program).args(["server", "--url", &url]).args(args);
        let ran = RunOutput::of(&mut suite);
        let (_, summary) = ran.stdout.split_once("=== SUMMARY ===").unwrap_or_else(|| panic!("{ran:?}"));
        let (summary, _) = summary.split_once("Total:").unwrap();
        summary.lines().filter(|line| !line.is_empty()).map(|line| counted(line).unwrap()).collect()
    }
}

/// Parses a line such as `✓ tools-list: 3 passed, 0 failed`.
fn counted(line: &str) -> Option<(String, (usize, usize))> {
    let (name, counts) = line.split_once(' ')?.1.split_once(": ")?;
    let (passes, failed) = counts.split_once(", ")?;
    let number = |text: &str| text.split(' ').next()?.parse().ok();
    Some((name.to_owned(), (number(passes)?, number(failed)?)))
}

/// Returns one column of the table, by scenario: 2 is the product, 3 the suite's own server.
fn verdicts(column: usize) -> BTreeMap<String, Verdict> {
    let rows = TABLE.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (verdict, reason) = cells[column].split_once(": ").unwrap_or((cells[column], ""));
        let verdict = match verdict {
            "passes" => Verdict::Passes { but: 0 },
            "does not apply" => Verdict::DoesNotApply,
            but => {
                let count = but.strip_prefix("passes but for ").and_then(|count| count.parse().ok());
                Verdict::Passes { but: count.unwrap_or_else(|| panic!("what is this? {row}")) }
            }
        };
        assert_eq!(reason.is_empty(), verdict == Verdict::Passes { but: 0 }, "a reason is given: {row}");
        (cells[1].trim_matches('`').to_owned(), verdict)
    })
    .collect()
}

/// Runs the suite for every revision and compares with a column of the table.
fn check(suite: &Suite, port: u16, column: usize) {
    let mut expected = verdicts(column);
    assert!(expected.values().any(|verdict| *verdict == Verdict::Passes { but: 0 }));
    let mut wrong = Vec::new();
    let mut seen = Vec::new();
    for revision in REVISIONS {
        for (scenario, (passed, failed)) in suite.run(port, revision) {
            let line = format!("{revision} {scenario}: {passed} passed, {failed} failed");
            match expected.get(&scenario) {
                Some(Verdict::Passes { but }) if failed != *but || passed == 0 => wrong.push(line),
                Some(_) => {}
                None => wrong.push(format!("{line}, and not in docs/conformance.md")),
            }
            seen.push(scenario);
        }
    }
    expected.retain(|scenario, _| !seen.contains(scenario));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(expected.is_empty(), "in docs/conformance.md, but not in the suite: {expected:?}");
}

#[test]
fn conformance_of_the_product() {
    let suite = match Suite::find() {
        Ok(suite) => suite,
        Err(reason) => return tools::skip("conformance_of_the_product", &reason),
    };
    let sandbox = workspace();
    let (mut served, port) = serve(&sandbox);
    check(&suite, port, 2);
    assert_eq!(served.running.terminate().code(), Some(0), "{}", served.running.errors());
}

/// Starts `switchboard serve`; returns it with the port for a client without the token.
fn serve(sandbox: &Sandbox) -> (TestServer, u16) {
    let proxy = TokenProxy::bind();
    // The server checks Host and Origin against its own port, and the suite sends that of the proxy.
    let names = ["127.0.0.1", "localhost"].map(|name| format!("{name}:{}", proxy.port()));
    let origins = names.clone().map(|name| format!("http://{name}"));
    let config = json!({ "http": { "allowedHosts": names, "allowedOrigins": origins } });
    sandbox.configure_user(&config.to_string());
    let served = TestServer::start(sandbox);
    let port = proxy.port();
    proxy.start(served.port, &served.token);
    (served, port)
}

/// With its tools listed flat by a suite, the suite's own server passes the same checks as alone.
#[test]
fn conformance_through_a_flat_suite() {
    let found = Suite::find().and_then(|suite| Ok((suite, example()?)));
    let (suite, example) = match found {
        Ok(found) => found,
        Err(reason) => return tools::skip("conformance_through_a_flat_suite", &reason),
    };
    let sandbox = flat(&example);
    let (mut served, port) = serve(&sandbox);
    check(&suite, port, 3);
    assert_eq!(served.running.terminate().code(), Some(0), "{}", served.running.errors());
}

#[test]
fn conformance_of_the_released_suite_through_a_flat_suite() {
    let name = "conformance_of_the_released_suite_through_a_flat_suite";
    let found = Suite::released().and_then(|suite| Ok((suite, example()?)));
    let (suite, example) = match found {
        Ok(found) => found,
        Err(reason) => return tools::skip(name, &reason),
    };
    let sandbox = flat(&example);
    let (_served, port) = serve(&sandbox);
    let ran = suite.run_with(port, &["--suite", "all"]);
    let failed: Vec<_> = ran.iter().filter(|(_, (passes, failed))| *passes == 0 || *failed > 0).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(ran.len() > 25, "{} scenarios", ran.len());
}

/// Creates a workspace whose only tools are those of a child server, under their own names.
fn flat(example: &Path) -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, &[]);
    let settings = json!({
        "suites": { "fixture": { "expose": { "mode": "flat", "bare": true } } },
        "tools": { "profile": "none" },
    });
    test_support::files::put(sandbox.path().join("switchboard.config.json"), settings.to_string());
    sandbox.ok(["suite", "add", "fixture", "--", &example.display().to_string(), "--stdio"]);
    sandbox
}

#[test]
fn conformance_of_the_transports_with_the_tools_of_the_suite() {
    let name = "conformance_of_the_transports_with_the_tools_of_the_suite";
    let found = Suite::find().and_then(|suite| Ok((suite, example()?)));
    let (suite, example) = match found {
        Ok(found) => found,
        Err(reason) => return tools::skip(name, &reason),
    };
    let server = Running::start(command(example).args(["--port", "0", "--no-token"]));
    let answer: Value = serde_json::from_str(&server.line()).unwrap();
    check(&suite, u16::try_from(answer["port"].as_u64().unwrap()).unwrap(), 3);
}

/// Returns the suite's own server, which is built with the tests of the workspace.
fn example() -> Result<PathBuf, String> {
    let tests = std::env::current_exe().unwrap();
    let profile = tests.parent().and_then(Path::parent).unwrap();
    let example = profile.join("examples/conformance_server");
    let hint = "it is not built: run `cargo build -p switchboard-mcp --examples`";
    if example.is_file() { Ok(example) } else { Err(format!("{}: {hint}", example.display())) }
}
