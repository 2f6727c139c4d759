//! What runs: two linked hubs, a watcher, a worker, the server between the hubs. And what kills it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use serde_json::json;
use switchboard_hub::clock::Clock;
use switchboard_hub::{Hub, HubConfig};
use test_support::nats::{NatsServer, Release};
use test_support::{Running, Sandbox, poll};

use super::cast::{BOXES, Cast, FAR};
use super::ledger::Ledger;
use super::verdict::Problems;
use crate::BINARY;
use crate::nats::server;

/// The channel of the lab.
pub(super) const CHANNEL: &str = "general";

/// How long whatever was accepted may take to arrive once nothing is killed any more.
const ARRIVAL: Duration = Duration::from_secs(90);

/// What the servers of the lab and of the office are called where they are killed.
pub(super) const SERVES: [&str; 2] = ["the lab's serve", "the office's serve"];

pub(super) struct Stage {
    pub(super) lab: Arc<Sandbox>,
    pub(super) office: Arc<Sandbox>,
    serves: [Running; 2],
    watcher: Running,
    nats: NatsServer,
    /// When what was killed; a session is called after its agent.
    pub(super) killed: Vec<(Timestamp, &'static str)>,
}

impl Stage {
    pub(super) fn start(test: &str) -> Option<Self> {
        let nats = server(test, Release::Newest, "")?;
        let lab = Arc::new(hub("lab", &nats, BOXES));
        let office = Arc::new(hub("office", &nats, FAR));
        let serves = [lab.serve(), office.serve()];
        lab.ok(["worker", "launch", "--agent", "echo", "--name", "parrot"]);
        for agent in ["chan-0", "chan-1"] {
            lab.ok(["channel", "post", "--agent", agent, "--channel", CHANNEL, "--text", "I am here"]);
        }
        let watcher = watch(&lab);
        wait_for(&lab, "far-3@office");
        for known in ["box-3@lab", "parrot@lab", "qc-1@lab", "chan-1@lab"] {
            wait_for(&office, known);
        }
        Some(Self { lab, office, serves, watcher, nats, killed: Vec::new() })
    }

    /// Kills one of the processes, whichever, and starts it again.
    pub(super) fn kill_one(&mut self, cast: &Cast<'_>, dice: &mut Rng) {
        let at = Clock::system().now();
        let what = match dice.u8(..8) {
            0 | 1 => {
                self.serves[0].kill();
                self.serves[0] = self.lab.serve();
                SERVES[0]
            }
            2 => {
                self.serves[1].kill();
                self.serves[1] = self.office.serve();
                SERVES[1]
            }
            3 | 4 => {
                self.watcher.kill();
                self.watcher = watch(&self.lab);
                "the watcher"
            }
            // It begins again by itself.
            _ => cast.kill_a_session(dice).unwrap_or("nothing"),
        };
        self.killed.push((at, what));
    }

    pub(super) fn restart_nats(&mut self) {
        self.killed.push((Clock::system().now(), "nats-server"));
        self.nats.restart();
    }

    /// How often something was killed that could cut off an answer to an agent: its session, or the server that answers it.
    pub(super) fn kills_near(&self, agent: &str, serve: &str) -> usize {
        self.killed.iter().filter(|(_, what)| *what == agent || *what == serve).count()
    }

    /// What was killed last before a moment, and how long before.
    pub(super) fn last_kill(&self, moment: Timestamp) -> String {
        let before = self.killed.iter().rev().find(|(at, _)| *at <= moment);
        before.map_or_else(String::new, |(at, what)| format!("{} after {what}", moment.duration_since(*at)))
    }

    /// Waits until nothing is on its way any more, and everything that is answered has its answer.
    pub(super) fn settle(&self, ledger: &Ledger) -> Result<(), Problems> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let late = runtime.block_on(async {
            let (lab, office) = (open(&self.lab).await, open(&self.office).await);
            let start = std::time::Instant::now();
            let late = loop {
                let waiting = super::verdict::on_the_way(&lab, &office, ledger).await;
                if waiting.is_empty() || start.elapsed() > ARRIVAL {
                    break waiting;
                }
                let _ = tokio::time::timeout(Duration::from_secs(1), lab.changes().next()).await;
            };
            lab.shut_down().await;
            office.shut_down().await;
            late
        });
        Problems::none_of(late, self)
    }

    pub(super) fn errors(&self) -> String {
        self.serves.iter().chain([&self.watcher]).map(Running::errors).collect::<Vec<_>>().join("\n---\n")
    }

    /// Asks everything to end; the folders of both hubs.
    pub(super) fn end(mut self) -> [Arc<Sandbox>; 2] {
        self.watcher.terminate();
        for serve in &mut self.serves {
            let status = serve.terminate();
            assert!(status.success(), "{status}: {}", serve.errors());
        }
        [self.lab, self.office]
    }
}

/// The hub, as one more process has it.
pub(super) async fn open(sandbox: &Sandbox) -> Hub {
    Hub::open(HubConfig::new(sandbox.file(""))).await.unwrap()
}

fn hub(name: &str, nats: &NatsServer, agents: &[&str]) -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, agents);
    let settings = json!({
        "nats": { "url": nats.url(), "hub": name, "presenceSeconds": 4 },
        // The echo answers everything it gets, which is no storm here.
        "hub": { "repliesPerMinute": 1_000_000, "unseenSeconds": 0 },
    });
    sandbox.configure_user(&settings.to_string());
    sandbox
}

/// A program that answers whatever it is asked.
fn watch(lab: &Sandbox) -> Running {
    let program = ["--", "sh", "-c", "cat > /dev/null; echo answered"];
    // It catches up on all that came while it was down.
    let watching = ["watch", "--agent", "qc-1", "--channel", CHANNEL, "--backlog", "1000000"];
    let watch = lab.start(watching.into_iter().chain(program));
    watch.line();
    watch
}

fn wait_for(sandbox: &Sandbox, agent: &str) {
    poll::until(&format!("to hear of {agent}"), || {
        sandbox.json(["agents"]).iter().any(|known| known["name"] == agent).then_some(())
    });
}

/// The processes that were started in a folder and still run: they have it as their home.
pub(super) fn processes_of(root: &Path) -> Vec<String> {
    let root = root.display().to_string();
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.parse::<u32>().ok());
    ids.filter(|id| *id != std::process::id())
        .filter_map(|id| {
            let text = |file: &str| std::fs::read(format!("/proc/{id}/{file}")).ok();
            let environment = String::from_utf8_lossy(&text("environ")?).into_owned();
            let command = String::from_utf8_lossy(&text("cmdline")?).replace('\0', " ");
            environment.contains(&root).then(|| format!("{id} {command}"))
        })
        .collect()
}
