//! Test support for children: fixture programs, a client, and waits with a deadline.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use switchboard_core::json::to_raw;

use super::{Child, ChildError, ChildOptions, RecoveryRules};
use crate::host::{Caller, Host, RpcError};
use crate::spec::{ChildSpec, Expose, Framing, Launch, Limits};

/// Far longer than any step takes, so that only a hang reaches it.
pub(super) const DEADLINE: Duration = Duration::from_mins(1);

pub(super) async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("it takes no longer than the deadline")
}

/// Polls until a condition holds.
pub(super) async fn until(mut holds: impl FnMut() -> bool) {
    with_timeout(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(super) fn launch(script: &str, args: &[&str]) -> Launch {
    let children = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/children");
    // `-B`: Python would write compiled modules beside the fixtures.
    let flags = ["-B".to_owned(), children.join(script).display().to_string()];
    Launch::Stdio {
        command: "python3".to_owned(),
        args: flags.into_iter().chain(args.iter().map(|&arg| arg.to_owned())).collect(),
        env: BTreeMap::from([("DECLARED".to_owned(), "yes".to_owned())]),
        cwd: children,
        framing: Framing::Newline,
    }
}

pub(super) fn spec(launch: Launch) -> ChildSpec {
    ChildSpec {
        name: "fixture".to_owned(),
        description: None,
        switchboard_description: None,
        file: PathBuf::from("fixture/.mcp.json"),
        launch,
        unready: None,
        limits: Limits { spawn: Duration::from_secs(20), rpc: Duration::from_secs(20), ..Limits::default() },
        expose: Expose::default(),
        template: crate::spec::LaunchTemplate::default(),
    }
}

/// Creates a child of a fixture program.
pub(super) fn child(script: &str, args: &[&str]) -> Child {
    child_with(script, args, |_, _| {})
}

/// Creates a child of a fixture program with other limits and options.
pub(super) fn child_with(
    script: &str,
    args: &[&str],
    change: impl FnOnce(&mut ChildSpec, &mut ChildOptions),
) -> Child {
    let mut spec = spec(launch(script, args));
    // Python starts slowly beside all other tests.
    spec.limits.spawn = DEADLINE;
    let mut options = ChildOptions { recovery: quick(), ..ChildOptions::default() };
    change(&mut spec, &mut options);
    Child::with_options(Arc::new(spec), options)
}

/// Short backoffs for tests.
pub(super) fn quick() -> RecoveryRules {
    RecoveryRules {
        first: Duration::from_millis(2),
        most: Duration::from_millis(10),
        failures: 3,
        open: Duration::from_mins(10),
        healthy: Duration::from_secs(10),
    }
}

pub(super) fn params(value: Value) -> Box<RawValue> {
    to_raw(&value)
}

/// Calls a tool.
pub(super) async fn call(
    child: &Child,
    tool: &str,
    arguments: Value,
    caller: &Caller,
) -> Result<Value, ChildError> {
    let params = params(json!({"name": tool, "arguments": arguments}));
    let answer = with_timeout(child.request("tools/call", Some(params), caller)).await?;
    Ok(serde_json::from_str(answer.get()).expect("the answer is JSON"))
}

/// Returns the text of a tool's answer.
pub(super) async fn text(child: &Child, tool: &str) -> Result<String, ChildError> {
    let answer = call(child, tool, json!({}), &Caller::default()).await?;
    Ok(answer["content"][0]["text"].as_str().unwrap_or_default().to_owned())
}

/// A client that answers every request with its own name, and records notifications.
pub(super) struct TestHost {
    pub(super) name: &'static str,
    pub(super) capabilities: Value,
    pub(super) told: Mutex<Vec<(String, Value)>>,
    /// True if requests are never answered.
    pub(super) is_silent: bool,
    pub(super) asked: Mutex<Vec<(String, String)>>,
    pub(super) dropped: Arc<Mutex<usize>>,
}

impl TestHost {
    pub(super) fn new(name: &'static str, capabilities: Value) -> Arc<Self> {
        Arc::new(Self::build(name, capabilities, false))
    }

    pub(super) fn silent(name: &'static str, capabilities: Value) -> Arc<Self> {
        Arc::new(Self::build(name, capabilities, true))
    }

    fn build(name: &'static str, capabilities: Value, is_silent: bool) -> Self {
        let (notified, requests) = (Mutex::default(), Mutex::default());
        Self { name, capabilities, told: notified, is_silent, asked: requests, dropped: Arc::default() }
    }

    pub(super) fn caller(self: &Arc<Self>) -> Caller {
        Caller { host: Some(Arc::clone(self) as Arc<dyn Host>), ..Caller::default() }
    }
}

struct Dropped(Arc<Mutex<usize>>);

impl Drop for Dropped {
    fn drop(&mut self) {
        *self.0.lock() += 1;
    }
}

impl Host for TestHost {
    fn capabilities(&self) -> Value {
        self.capabilities.clone()
    }

    fn notify(&self, method: &str, params: Option<Box<RawValue>>) -> BoxFuture<'_, ()> {
        let params = params.map(|params| serde_json::from_str(params.get()).expect("it is JSON"));
        self.told.lock().push((method.to_owned(), params.unwrap_or_default()));
        Box::pin(std::future::ready(()))
    }

    fn request(
        &self,
        asker: &str,
        method: &str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, RpcError>> {
        self.asked.lock().push((asker.to_owned(), method.to_owned()));
        let answer = to_raw(&json!({"by": self.name, "method": method, "params": params}));
        let (dropped, is_silent) = (Dropped(Arc::clone(&self.dropped)), self.is_silent);
        Box::pin(async move {
            let _dropped = dropped;
            if is_silent {
                std::future::pending::<()>().await;
            }
            Ok(answer)
        })
    }
}
