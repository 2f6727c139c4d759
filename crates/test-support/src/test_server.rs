//! `switchboard serve` beside a test, and where its HTTP side is.

use serde_json::Value;

use crate::http::Request;
use crate::process::Running;
use crate::sandbox::Sandbox;

/// A server that runs, and what a client has to know of it. Ends with this value.
pub struct TestServer {
    /// The process.
    pub running: Running,
    /// Where it listens.
    pub port: u16,
    /// Its token.
    pub token: String,
}

impl TestServer {
    /// Starts `serve` on a port that the system chooses.
    pub fn start(sandbox: &Sandbox) -> Self {
        Self::with(sandbox, &[])
    }

    /// The same, with more arguments.
    pub fn with(sandbox: &Sandbox, args: &[&str]) -> Self {
        let mut command = sandbox.command([&["serve", "--port", "0", "--json"], args].concat());
        Self::of(sandbox, Running::start(&mut command))
    }

    /// A server that was started with `--json`, once it says where it is.
    pub fn of(sandbox: &Sandbox, running: Running) -> Self {
        let answer: Value = serde_json::from_str(&running.line()).unwrap();
        let port = answer["port"].as_u64().and_then(|port| u16::try_from(port).ok()).unwrap();
        let token = std::fs::read_to_string(sandbox.file("auth_token")).unwrap();
        Self { running, port, token }
    }

    /// The address of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A request with the token, and with the name of an agent where there is one.
    pub fn authorize(&self, request: Request, agent: Option<&str>) -> Request {
        request.authorized(&self.token, agent)
    }
}
