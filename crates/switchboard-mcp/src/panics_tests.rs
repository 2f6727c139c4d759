use rmcp::model::CallToolResult;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex, split};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{RawCall, RawCallHandler};

/// Handler whose calls panic, except `whole`.
#[derive(Clone)]
struct Panicking;

impl ServerHandler for Panicking {
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        assert_eq!(request.name, "whole", "on purpose");
        Ok(CallToolResult::success(Vec::new()).into())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        panic!("on purpose")
    }
}

impl RawCallHandler for Panicking {
    fn accepts(&self, tool: &str) -> bool {
        tool.starts_with("passed")
    }

    async fn call(&self, call: RawCall) -> Result<Box<RawValue>, Box<RawValue>> {
        if call.tool == "passed later" {
            tokio::task::yield_now().await;
        }
        assert_eq!(call.tool, "passed whole", "on purpose");
        Ok(to_raw_value(&json!({})).unwrap())
    }
}

/// Over the standard streams, as a raw call and through `rmcp`. The session continues.
#[tokio::test]
async fn panicking_request_is_answered_over_stdio() {
    let (ours, theirs) = duplex(64 << 10);
    let (input, output) = split(theirs);
    let session = crate::stdio::serve(
        Panicking,
        Panicking,
        (input, output),
        crate::stdio::ClientState::new(crate::attach::Connection::default(), std::future::pending()),
        CancellationToken::new(),
    );
    let session = tokio::spawn(session);
    let (from, mut to) = split(ours);
    let mut lines = BufReader::new(from).lines();
    let client = json!({ "name": "test", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let mut requests = vec![json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })];
    requests.push(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let tools = ["panic", "passed", "passed later", "whole", "passed whole"];
    for (id, tool) in (1..).zip(tools) {
        let params = json!({ "name": tool });
        requests.push(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }));
    }
    requests.push(json!({ "jsonrpc": "2.0", "id": 6, "method": "tools/list" }));
    let mut answers = Vec::new();
    for request in requests {
        to.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        if request["id"].is_null() {
            continue;
        }
        let answer: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        assert_eq!(answer["id"], request["id"], "{answer}");
        answers.push(answer["error"]["code"].as_i64());
    }
    let failed = Some(-32603);
    assert_eq!(answers, [None, failed, failed, failed, None, None, failed]);
    drop((lines, to));
    session.await.unwrap();
}
