//! An agent of another program, in the manner of the existing Python implementation: `peers/plain.py`.

use serde_json::{Value, json};
use test_support::ca::PrivateCa;
use test_support::ports::free_port;
use test_support::process::{Running, command};
use test_support::{poll, tools};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/swarm/peers/plain.py");

/// The agent. Ends with this value.
pub(super) struct Plain {
    running: Running,
}

impl Plain {
    /// One with the certificate that the authority has issued into its folder; `endpoint` follows host and port.
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

    /// Has it do something; what came of it.
    pub(super) fn ask(&mut self, what: &str, mut arguments: Value) -> Value {
        arguments["do"] = what.into();
        self.running.write_line(&arguments.to_string()).unwrap();
        serde_json::from_str(&self.running.line()).unwrap()
    }

    /// Sends a message to an agent, or `broadcast`; what each of those it was sent to has answered.
    pub(super) fn send(&mut self, swarm: &str, to: &str, text: &str) -> Value {
        self.ask("send", json!({ "swarm_id": swarm, "to": to, "content": text }))["statuses"].clone()
    }

    /// Waits until these are the members that it knows.
    pub(super) fn knows(&mut self, swarm: &str, members: &[&str]) {
        poll::until(&format!("the other program knows {members:?}"), || {
            (self.ask("members", json!({ "swarm_id": swarm })) == json!(members)).then_some(())
        });
    }

    /// Waits for a message that is as it should be.
    pub(super) fn gets(&mut self, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        poll::until(&format!("the other program gets {what}"), || {
            let inbox = self.ask("inbox", json!({}));
            inbox.as_array().unwrap().iter().find(|message| is_it(message)).cloned()
        })
    }

    /// The status, and the code of the error, that a request of its own making is answered with.
    pub(super) fn forge(&mut self, url: &str, fields: Value, after: Value) -> (u64, String) {
        let told = self.ask("forge", json!({ "url": url, "fields": fields, "after": after }));
        answered(&told)
    }
}

/// The status of an answer, and the code of its error.
pub(super) fn answered(told: &Value) -> (u64, String) {
    let code = told["answer"]["error"]["code"].as_str().unwrap_or_default();
    (told["status"].as_u64().unwrap(), code.to_owned())
}
