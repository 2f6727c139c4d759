//! One owner: a workspace, agents in swarms, and a hub that can be served.

use std::path::Path;

use serde_json::{Value, json};
use test_support::ca::PrivateCa;
use test_support::ports::free_port;
use test_support::{Running, Sandbox, TestServer, poll};

use crate::BINARY;

pub(super) struct Owner {
    pub(super) sandbox: Sandbox,
    pub(super) port: u16,
    pub(super) served: Option<TestServer>,
    /// Arguments of `serve` besides the settings.
    args: Vec<String>,
}

impl Owner {
    /// Creates an owner with one agent, and a certificate of this authority.
    pub(super) fn new(ca: &PrivateCa, agent: &str) -> Self {
        Self::trusting(ca, &ca.file(), agent)
    }

    /// Does the same, with more trusted authorities.
    pub(super) fn trusting(ca: &PrivateCa, believed: &Path, agent: &str) -> Self {
        Self::configured(
            agent,
            "https://127.0.0.1:PORT/swarm",
            |port| json!({ "swarm": files(ca, believed, port) }),
        )
    }

    /// Creates an owner with settings for a port, which is part of the endpoint as well.
    pub(super) fn configured(agent: &str, endpoint: &str, settings: impl FnOnce(u16) -> Value) -> Self {
        Self::started(agent, endpoint, settings, &[])
    }

    /// Does the same, with arguments for `serve`, which may contain the port as well.
    pub(super) fn started(
        agent: &str,
        endpoint: &str,
        settings: impl FnOnce(u16) -> Value,
        args: &[&str],
    ) -> Self {
        let port = free_port();
        let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
        sandbox.configure_user(&settings(port).to_string());
        let with_port = |text: &str| text.replace("PORT", &port.to_string());
        let endpoint = with_port(endpoint);
        sandbox.ok(["swarm", "init", "--agent", agent, "--endpoint", &endpoint]);
        let args = args.iter().map(|arg| with_port(arg)).collect();
        let mut owner = Self { sandbox, port, served: None, args };
        owner.serve();
        owner
    }

    pub(super) fn serve(&mut self) {
        let mut command = self.sandbox.command(["serve", "--port", "0", "--json"]);
        command.args(&self.args);
        self.served = Some(TestServer::of(&self.sandbox, Running::start(&mut command)));
    }

    pub(super) fn stop(&mut self) {
        drop(self.served.take());
    }

    pub(super) fn ok(&self, args: &[&str]) -> String {
        self.sandbox.ok(args)
    }

    pub(super) fn json(&self, args: &[&str]) -> Vec<Value> {
        self.sandbox.json(args)
    }

    /// Waits until these are the members.
    pub(super) fn wait_for_members(&self, members: &[&str]) {
        poll::until(&format!("members {members:?}"), || {
            let listed = self.json(&["swarm", "members"]);
            let known: Vec<&str> = listed.iter().map(|member| member["agent_id"].as_str().unwrap()).collect();
            (known == members).then_some(())
        });
    }

    /// Waits for a message in an agent's mailbox.
    pub(super) fn wait_for_message(&self, agent: &str, text: &str) -> Value {
        poll::until(&format!("{agent} gets '{text}'"), || {
            self.json(&["inbox", agent]).into_iter().find(|message| message["body"] == text)
        })
    }
}

/// Returns the section `swarm` with the certificate that the authority has issued into its folder.
pub(super) fn files(ca: &PrivateCa, believed: &Path, port: u16) -> Value {
    let folder = ca.file().parent().unwrap().to_owned();
    json!({
        "listen": format!("127.0.0.1:{port}"), "cert": folder.join("cert.pem"), "key": folder.join("key.pem"),
        "ca": believed, "allow": ["127.0.0.0/8", "localhost"],
    })
}

pub(super) fn id(message: &Value) -> &str {
    message["id"].as_str().unwrap()
}
