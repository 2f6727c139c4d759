//! Stage: an owner with a hub, an agent and a swarm, all created by the shipped program.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};
use switchboard_sys::files::Dir;
use switchboard_sys::process::Spawn;
use tokio::io::AsyncReadExt;
use uuid::Uuid;

use super::authority::Authority;
use super::messages::new_uuid;
use super::timestamp;
use crate::mcp::http::Serve;
use crate::program::shipped;
use crate::run_folder::RunFolder;

/// Name of the hub's agent, which receives the messages.
pub(super) const AGENT: &str = "reader";

/// Another member of the swarm.
pub(super) struct Peer {
    pub(super) id: String,
    pub(super) endpoint: String,
    pub(super) public_key: String,
}

/// Prepared workspace in which `serve` runs.
pub(super) struct Stage {
    home: PathBuf,
    workspace: PathBuf,
    pub(super) port: u16,
    pub(super) swarm: Uuid,
}

impl Stage {
    /// Creates a workspace with an agent, and a swarm with these members that the agent leads.
    pub(super) async fn build(
        place: &RunFolder,
        authority: &Authority,
        peers: &[Peer],
    ) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let stage = Self { home: place.fresh()?, workspace: place.fresh()?, port, swarm: new_uuid() };
        let files = authority.issue(vec!["127.0.0.1".to_owned()], &stage.home)?;
        // The protocol's rate limits are meant for strangers, not for a benchmark.
        let settings = json!({ "swarm": {
            "listen": format!("127.0.0.1:{port}"), "cert": files.cert, "key": files.key, "ca": files.ca,
            "allow": ["127.0.0.0/8"], "limits": { "perSender": 0, "perSwarm": 0, "perClient": 0 },
        } });
        let folder = Dir::open_root(&stage.home)?.ensure_subdir(".config")?.ensure_subdir("switchboard")?;
        folder.replace("config.json", settings.to_string().as_bytes(), 0o600)?;
        stage.run(&["init"]).await?;
        let endpoint = format!("https://127.0.0.1:{port}/swarm");
        let printed =
            stage.run(&["--json", "swarm", "init", "--agent", AGENT, "--endpoint", &endpoint]).await?;
        let own: Value = serde_json::from_str(&printed)?;
        let own = own["public_key"].as_str().context("the agent has no key")?;
        let me = Peer { id: AGENT.to_owned(), endpoint, public_key: own.to_owned() };
        let state = stage.state(peers.iter().chain([&me])).to_string();
        Dir::open_root(&stage.home)?.replace("state.json", state.as_bytes(), 0o600)?;
        stage.run(&["swarm", "import", &stage.home.join("state.json").display().to_string()]).await?;
        Ok(stage)
    }

    /// Builds the agent's swarm state, in the format of an export.
    fn state<'p>(&self, members: impl Iterator<Item = &'p Peer>) -> Value {
        let now = timestamp();
        let member = |peer: &Peer| {
            json!({
                "agent_id": peer.id, "endpoint": peer.endpoint, "public_key": peer.public_key, "joined_at": now,
            })
        };
        let swarm = json!({
            "swarm_id": self.swarm, "name": "bench", "master": AGENT, "joined_at": now,
            "members": members.map(member).collect::<Vec<_>>(), "settings": {},
        });
        json!({
            "schema_version": "1.0.0", "agent_id": AGENT, "swarms": Map::from_iter([(self.swarm.to_string(), swarm)]),
            "muted_swarms": [], "muted_agents": [], "public_keys": {},
        })
    }

    /// Starts `serve`, which runs until the returned value is closed.
    pub(super) async fn serve(&self) -> anyhow::Result<Serve> {
        Serve::start_with(&self.workspace, |spawn| spawn.env("HOME", &self.home)).await
    }

    /// Runs the program to its end and returns its output.
    pub(super) async fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        let spawn = Spawn::new(shipped()?).args(args).cwd(&self.workspace).env("HOME", &self.home);
        let mut child = spawn.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let mut printed = String::new();
        child.stdout_reader().context("no stdout")?.read_to_string(&mut printed).await?;
        let status = child.wait().await?;
        ensure!(status.success(), "switchboard {args:?} ended with {status}");
        Ok(printed)
    }
}
