//! Remote servers: the official one over both of its transports.

use serde_json::json;
use test_support::ports::free_port;
use test_support::process::command;
use test_support::{Running, poll, tools};

use super::{call, client, npm, sandbox};

#[test]
fn everything_works_over_streamable_http_and_sse() {
    let server = match npm("everything", &[]) {
        Ok(server) => server,
        Err(reason) => return tools::skip("everything_works_over_streamable_http_and_sse", &reason),
    };
    for (mode, kind, path) in [("streamableHttp", "http", "mcp"), ("sse", "sse", "sse")] {
        let port = free_port();
        let running =
            Running::start(command(&server[0]).args(&server[1..]).arg(mode).env("PORT", port.to_string()));
        poll::until("the server listens", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        let sandbox = sandbox();
        sandbox.ok([
            "suite",
            "add",
            "remote",
            "--type",
            kind,
            "--url",
            &format!("http://127.0.0.1:{port}/{path}"),
        ]);
        let mut through = client(&sandbox);
        let echo = json!({ "name": "remote_suite", "arguments": call("echo", json!({ "message": mode })) });
        let answer = through.request("tools/call", echo).unwrap();
        assert_eq!(answer["content"][0]["text"], format!("Echo: {mode}"), "{answer}");
        let image = json!({ "name": "remote_suite", "arguments": call("get-tiny-image", json!({})) });
        assert_eq!(through.request("tools/call", image).unwrap()["content"][1]["type"], "image", "{mode}");
        let introspect = json!({ "name": "remote_suite", "arguments": { "action": "introspect" } });
        let listed = through.request("tools/call", introspect).unwrap();
        assert!(listed["content"][0]["text"].as_str().unwrap().contains("get-sum(a: number, b: number)"));
        drop(running);
    }
}
