//! An agent of another program, like the existing Python implementation: `peers/plain.py`.

use serde_json::{Value, json};
use test_support::ca::PrivateCa;
use test_support::ports::free_port;
use test_support::process::{Running, command};
use test_support::{poll, tools};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/swarm/peers/plain.py");

/// The agent, which ends when this value is dropped.
pub(super) struct Plain {
    running: Running,
}

impl Plain {
    /// Starts one with the certificate that the authority has issued into its folder; `endpoint` follows host and port.
    pub(super) fn start(ca: &PrivateCa, agent: &str, endpoint: &str) -> Result<Self, String> {
        let python = tools::installed("pypi/mcp")?.join("bin/python");
        let (port, folder) = (free_port(), ca.file().parent().unwrap().to_owned());
        let mut script = command(python);
        script.arg(SCRIPT).args([agent, &port.to_string()]);
        script.args([folder.join("cert.pem"), folder.join("key.pem"), ca.file()]);
        script.arg(format!("https://127.0.0.1:{port}{endpoint}"));
        let mut running = Running::start_with_stdin(&mut script);
        poll::until("the agent to listen", || {
            assert!(running.is_running(), "it ended: {}", running.errors());
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok().then_some(())
        });
        Ok(Self { running })
    }

    /// Runs a command in it; returns the result.
    pub(super) fn command(&mut self, what: &str, mut arguments: Value) -> Value {
        arguments["do"] = what.into();
        self.running.write_line(&arguments.to_string()).unwrap();
        serde_json::from_str(&self.running.line()).unwrap()
    }

    /// Sends a message to an agent, or `broadcast`; returns the answer of each recipient.
    pub(super) fn send(&mut self, swarm: &str, to: &str, text: &str) -> Value {
        self.command("send", json!({ "swarm_id": swarm, "to": to, "content": text }))["statuses"].clone()
    }

    /// Waits until these are the members that it knows.
    pub(super) fn wait_for_members(&mut self, swarm: &str, members: &[&str]) {
        poll::until(&format!("the other program knows {members:?}"), || {
            (self.command("members", json!({ "swarm_id": swarm })) == json!(members)).then_some(())
        });
    }

    /// Waits for a message that fulfils the condition.
    pub(super) fn wait_for_message(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        poll::until(&format!("the other program gets {what}"), || {
            let inbox = self.command("inbox", json!({}));
            inbox.as_array().unwrap().iter().find(|message| is_it(message)).cloned()
        })
    }

    /// Sends a forged request; returns the status, and the code of the error.
    pub(super) fn forge(&mut self, url: &str, fields: Value, after: Value) -> (u64, String) {
        let answer = self.command("forge", json!({ "url": url, "fields": fields, "after": after }));
        answered(&answer)
    }
}

/// Returns the status of an answer, and the code of its error.
pub(super) fn answered(answer: &Value) -> (u64, String) {
    let code = answer["answer"]["error"]["code"].as_str().unwrap_or_default();
    (answer["status"].as_u64().unwrap(), code.to_owned())
}
