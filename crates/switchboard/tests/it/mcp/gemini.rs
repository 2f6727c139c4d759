//! The real Gemini CLI over HTTP, whose client knows no priming events.

use serde_json::json;
use test_support::model::Model;
use test_support::{RunOutput, TestServer, files, gemini, process, tools};

use crate::workspace;

#[test]
fn gemini_lists_and_calls_tools_over_http() {
    let [node, script] = match gemini::program() {
        Ok(program) => program,
        Err(reason) => return tools::skip("gemini_lists_and_calls_tools_over_http", &reason),
    };
    let (sandbox, model) = (workspace(), Model::start());
    let served = TestServer::start(&sandbox);
    sandbox.send("codex", "claude", "a letter for gemini");
    let headers =
        json!({ "Authorization": format!("Bearer {}", served.token), "switchboard-agent": "claude" });
    let server = json!({ "httpUrl": served.url("/mcp"), "headers": headers, "trust": true });
    let settings = json!({ "mcpServers": { "switchboard": server } });
    std::fs::create_dir_all(sandbox.home().join(".gemini")).unwrap();
    files::put(sandbox.home().join(".gemini/settings.json"), settings.to_string());
    gemini::prepare_home(sandbox.home());
    let mut command = process::command(node);
    command.current_dir(sandbox.path()).envs(gemini::environment(&model, sandbox.home()));
    command.arg(script).args(["--skip-trust", "-p", "CALL check_inbox {}\nSAY read"]);
    let ran = RunOutput::of(&mut command);
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "read"), "{}", ran.stderr);
    let bodies = model.bodies();
    assert!(bodies[0]["tools"].to_string().contains("send_message"), "{}", bodies[0]["tools"]);
    let last_request = model.requests().last().unwrap().to_string();
    assert!(
        last_request.contains("functionResponse") && last_request.contains("a letter for gemini"),
        "{last_request}"
    );
}
