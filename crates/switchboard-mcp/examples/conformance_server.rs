//! Test server for the official MCP conformance suite, on the same transports as the product.
//!
//! `--port N` listens on that port (0 for any free one) and prints one line of JSON with the port and the token;
//! `--no-token` disables the token, because the suite cannot send headers; `--stdio` serves the standard streams
//! instead.

#![allow(clippy::print_stdout, reason = "where the server is found goes to whoever started it")]

#[path = "conformance/fixtures.rs"]
mod fixtures;
#[path = "conformance/inputs.rs"]
mod inputs;
#[path = "conformance/server.rs"]
mod server;

use serde_json::json;
use switchboard_mcp::{
    HttpConfig, Listener, McpError, NoRawCalls, PortChoice, Token, serve_http, serve_stdio,
};
use tokio_util::sync::CancellationToken;

use self::server::Fixture;

#[tokio::main]
async fn main() -> Result<(), McpError> {
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let fixture = Fixture::new();
    if arguments.iter().any(|argument| argument == "--stdio") {
        return serve_stdio(fixture, NoRawCalls, CancellationToken::new()).await;
    }
    let port = arguments.iter().skip_while(|argument| *argument != "--port").nth(1);
    let port = port.and_then(|port| port.parse().ok()).map_or(PortChoice::Default, PortChoice::Exactly);
    let require_token = !arguments.iter().any(|argument| argument == "--no-token");
    let config = HttpConfig { port, require_token, ..HttpConfig::default() };
    let listener = Listener::bind(config.port).await?;
    let token = Token::generate()?;
    println!("{}", json!({ "port": listener.port(), "token": token.reveal() }));
    let (health, extra, shutdown) = (|| json!({}), axum::Router::new(), CancellationToken::new());
    serve_http(listener, config, token, health, extra, move || fixture.clone(), shutdown).await
}
