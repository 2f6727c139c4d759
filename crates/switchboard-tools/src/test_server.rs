//! A workspace whose tools are called by a real MCP client over an in-memory pipe.

use rmcp::model::{CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, Implementation};
use rmcp::service::{RoleClient, RunningService};
use rmcp::{ClientHandler, ServiceExt};
use serde_json::{Value, json};
use switchboard_core::{Door, MessageId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{ToolConfig, ToolServer};
use crate::test_workspace::TestWorkspace;

/// A workspace with its tools.
pub(crate) struct TestTools {
    pub(crate) workspace: TestWorkspace,
    first: ToolServer,
}

/// A client that records resource notifications.
#[derive(Clone)]
pub(crate) struct Listener {
    updates: mpsc::Sender<String>,
}

/// One session.
pub(crate) struct Client {
    service: RunningService<RoleClient, Listener>,
    pub(crate) updates: mpsc::Receiver<String>,
}

impl ClientHandler for Listener {
    fn get_info(&self) -> ClientConfig {
        let mut info =
            ClientConfig::new(ClientCapabilities::default(), Implementation::new("test-client", "1"));
        info.protocol_version = rmcp::model::ProtocolVersion::LATEST_WITH_INITIALIZE;
        info
    }

    async fn on_resource_updated(
        &self,
        update: rmcp::model::ResourceUpdatedNotificationParam,
        _: rmcp::service::NotificationContext<RoleClient>,
    ) {
        let _ = self.updates.try_send(update.uri);
    }
}

impl TestTools {
    pub(crate) async fn new() -> Self {
        Self::with(ToolConfig::default()).await
    }

    pub(crate) async fn with(config: ToolConfig) -> Self {
        let workspace = TestWorkspace::new().await;
        let outbound =
            workspace.workspace.hub().deliveries().open_door(Door::Workspace).await.expect("the door");
        let working = workspace.workspace.clone();
        tokio::spawn(async move {
            door_workspace::run_deliveries(&working, outbound, CancellationToken::new()).await;
        });
        let first = ToolServer::new(workspace.workspace.clone(), config);
        Self { workspace, first }
    }

    /// Waits until an accepted message is delivered.
    pub(crate) async fn arrived(&self, sent: &Value) {
        let id: MessageId =
            door_workspace::from_native(sent["id"].as_str().expect("an id")).expect("an id of ours");
        self.workspace.workspace.hub().deliveries().wait_until_settled(id).await.expect("settled");
    }

    /// Waits until a condition holds.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, so: impl Fn() -> F) {
        while !so().await {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Creates a server for another session.
    pub(crate) fn server(&self) -> ToolServer {
        self.first.new_session()
    }

    /// Opens a session without an agent.
    pub(crate) async fn client(&self) -> Client {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let server = self.server();
        tokio::spawn(async move {
            if let Ok(running) = Box::pin(server.serve(ours)).await {
                let _ = running.waiting().await;
            }
        });
        let (sender, updates) = mpsc::channel(64);
        let service = Listener { updates: sender }.serve(theirs).await.expect("a session");
        Client { service, updates }
    }

    /// Opens a session for an agent.
    pub(crate) async fn agent(&self, name: &str) -> Client {
        let client = self.client().await;
        client.ok("register_chat_agent", json!({ "name": name })).await;
        client
    }
}

impl Client {
    pub(crate) fn peer(&self) -> &rmcp::Peer<RoleClient> {
        self.service.peer()
    }

    pub(crate) async fn call(&self, tool: &'static str, arguments: Value) -> CallToolResult {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let request = CallToolRequestParams::new(tool).with_arguments(arguments);
        self.service.call_tool(request).await.expect("an answer")
    }

    /// Calls a tool that must succeed; returns its data.
    pub(crate) async fn ok(&self, tool: &'static str, arguments: Value) -> Value {
        let result = self.call(tool, arguments).await;
        assert_ne!(result.is_error, Some(true), "{}", text(&result));
        result.structured_content.expect("data")
    }

    /// Calls a tool that must fail; returns its text.
    pub(crate) async fn refused(&self, tool: &'static str, arguments: Value) -> String {
        let result = self.call(tool, arguments).await;
        assert_eq!(result.is_error, Some(true), "{}", text(&result));
        text(&result)
    }

    /// Ends the session.
    pub(crate) async fn close(self) {
        let _ = self.service.cancel().await;
    }
}

/// Returns the text of a result.
pub(crate) fn text(result: &CallToolResult) -> String {
    result
        .content
        .iter()
        .filter_map(|block| block.as_text())
        .map(|text| text.text.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}
