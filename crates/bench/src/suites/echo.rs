//! MCP echo server, the simplest server that can be behind a suite.

use std::io::{BufRead, Write};

use serde_json::{Value, json};

/// Serves MCP on stdin and stdout until stdin ends.
pub(crate) fn run() -> anyhow::Result<()> {
    let (input, mut output) = (std::io::stdin().lock(), std::io::stdout().lock());
    for line in input.lines() {
        let message: Value = serde_json::from_str(&line?)?;
        let Some(id) = message.get("id") else { continue };
        let answer = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "echo", "version": "1" },
            }),
            Some("tools/list") => json!({ "tools": [{
                "name": "echo",
                "description": "Gives back what it is given.",
                "inputSchema": {
                    "type": "object",
                    "properties": { "message": { "type": "string" } },
                    "required": ["message"],
                },
            }]}),
            Some("tools/call") => json!({
                "content": [{ "type": "text", "text": message["params"]["arguments"]["message"] }],
            }),
            _ => json!({}),
        };
        let mut line = json!({ "jsonrpc": "2.0", "id": id, "result": answer }).to_string();
        line.push('\n');
        output.write_all(line.as_bytes())?;
        output.flush()?;
    }
    Ok(())
}
