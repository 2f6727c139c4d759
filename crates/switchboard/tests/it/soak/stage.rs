//! The processes of the soak test: two linked hubs, one of another owner, a watcher, a worker, the NATS server; and
//! their disturbances.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use switchboard_hub::{Hub, HubConfig};
use switchboard_sys::clock::Clock;
use test_support::ca::{PrivateCa, Validity};
use test_support::nats::{NatsServer, Release};
use test_support::{Running, Sandbox, poll, ports};

use super::cast::{BOXES, Cast, FAR, MEMBER, PEER, PEERS, REALM};
use super::ledger::Ledger;
use super::verdict::Problems;
use crate::BINARY;
use crate::nats::server;

/// The channel of the lab.
pub(super) const CHANNEL: &str = "general";

/// Time for accepted messages to arrive after the last disturbance.
const ARRIVAL: Duration = Duration::from_secs(90);

/// Names of the servers of the hubs in a [`Disturbance`].
pub(super) const SERVES: [&str; 3] = ["the lab's serve", "the office's serve", "the peers' serve"];

const WATCHER: &str = "the watcher";

/// The hubs, in the same order.
pub(super) const HUBS: [&str; 3] = ["lab", "office", "peers"];

/// The programs that answer for the watcher and for the worker. Each records its process id, so that it can be killed,
/// and runs for a moment, so that there is time to kill it.
const WATCHES: &str = r#"echo $$ > "$0"; cat > /dev/null; sleep 0.1; echo answered"#;
const WORKS: &str = r#"echo $$ > "$0"; sleep 0.1; cat"#;

/// How long to wait for a process to kill: it gets a message every other second.
const PREY: Duration = Duration::from_secs(3);

/// How long a server is stopped, in seconds: shorter and longer than its sessions need to detect it.
const STOPS: std::ops::RangeInclusive<u64> = 2..=8;

/// Disturbance of one process, with its time.
#[derive(Debug)]
pub(super) struct Disturbance {
    at: Timestamp,
    /// The process; a session is named after its agent.
    what: &'static str,
    how: How,
}

/// Kind of a [`Disturbance`].
#[derive(Debug, Clone, Copy)]
enum How {
    /// SIGKILL.
    Killed,
    /// SIGTERM, or the end of its stdin; it must end with success.
    Ended,
    /// SIGSTOP, and SIGCONT this number of seconds later.
    Stopped(u64),
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.how {
            How::Killed => write!(f, "{} killed", self.what),
            How::Ended => write!(f, "{} ended", self.what),
            How::Stopped(seconds) => write!(f, "{} stopped for {seconds} s", self.what),
        }
    }
}

pub(super) struct Stage {
    pub(super) lab: Arc<Sandbox>,
    pub(super) office: Arc<Sandbox>,
    pub(super) peers: Arc<Sandbox>,
    serves: [Running; 3],
    watcher: Running,
    nats: NatsServer,
    ca: PrivateCa,
    pub(super) disturbances: Vec<Disturbance>,
}

impl Stage {
    pub(super) fn start(test: &str) -> Option<Self> {
        let nats = server(test, Release::Newest, "")?;
        let ca = PrivateCa::new();
        ca.issue_files(&["127.0.0.1"], Validity::Valid);
        let (port, peers_port) = (ports::free_port(), ports::free_port());
        let lab = Arc::new(hub("lab", Some(&nats), BOXES, Some(swarm(&ca, port))));
        let office = Arc::new(hub("office", Some(&nats), FAR, None));
        let peers = Arc::new(hub("peers", None, PEERS, Some(swarm(&ca, peers_port))));
        for (sandbox, member, port) in [(&lab, MEMBER, port), (&peers, PEER, peers_port)] {
            let endpoint = format!("https://127.0.0.1:{port}/swarm");
            sandbox.ok(["swarm", "init", "--agent", member, "--endpoint", &endpoint]);
        }
        let serves = [lab.serve(), office.serve(), peers.serve()];
        peers.ok(["swarm", "create", REALM]);
        lab.ok(["swarm", "join", &peers.ok(["swarm", "invite"])]);
        let launch = ["worker", "launch", "--agent", "command", "--name", "parrot", "--", "sh", "-c", WORKS];
        lab.ok(launch.into_iter().chain([prey(&lab, "worker").to_str().unwrap()]));
        for agent in ["chan-0", "chan-1"] {
            lab.ok(["channel", "post", "--agent", agent, "--channel", CHANNEL, "--text", "I am here"]);
        }
        let watcher = watch(&lab);
        wait_for(&lab, "far-3@office");
        for known in ["box-2@lab", "parrot@lab", "qc-1@lab", "chan-1@lab"] {
            wait_for(&office, known);
        }
        wait_for(&lab, &format!("{PEER}@{REALM}"));
        wait_for(&peers, &format!("{MEMBER}@{REALM}"));
        Some(Self { lab, office, peers, serves, watcher, nats, ca, disturbances: Vec::new() })
    }

    /// Returns its workspaces, in the order of [`HUBS`].
    pub(super) fn sandboxes(&self) -> [&Arc<Sandbox>; 3] {
        [&self.lab, &self.office, &self.peers]
    }

    /// Kills, terminates or stops one of the processes, and restarts it if nothing else does.
    pub(super) fn disturb_one(&mut self, cast: &Cast<'_>, dice: &mut Rng) {
        let disturbance = loop {
            let at = Clock::system().now();
            // A process that does not run at the moment is not chosen.
            if let Some((what, how)) = self.try_to_disturb(cast, dice) {
                break Disturbance { at, what, how };
            }
        };
        self.disturbances.push(disturbance);
    }

    fn try_to_disturb(&mut self, cast: &Cast<'_>, dice: &mut Rng) -> Option<(&'static str, How)> {
        let killed = |what| (what, How::Killed);
        match dice.u8(..18) {
            0 | 1 => Some(killed(self.kill_serve(0))),
            2 => Some(killed(self.kill_serve(1))),
            3 => Some(killed(self.kill_serve(2))),
            4 | 5 => {
                self.watcher.kill();
                self.watcher = watch(&self.lab);
                Some(killed(WATCHER))
            }
            6 => kill_prey(&self.lab, "watcher").map(killed),
            7 => kill_prey(&self.lab, "worker").map(killed),
            8 | 9 => cast.kill_a_command(dice).map(killed),
            // It restarts without help.
            10 | 11 => cast.kill_a_session(dice).map(killed),
            12 => {
                let number = dice.usize(..SERVES.len());
                end(SERVES[number], &mut self.serves[number]);
                self.serves[number] = self.sandboxes()[number].serve();
                Some((SERVES[number], How::Ended))
            }
            13 => {
                end(WATCHER, &mut self.watcher);
                self.watcher = watch(&self.lab);
                Some((WATCHER, How::Ended))
            }
            14 | 15 => cast.end_a_session(dice).map(|agent| (agent, How::Ended)),
            _ => {
                let (number, seconds) = (dice.usize(..SERVES.len()), dice.u64(STOPS));
                let serve = &self.serves[number];
                serve.signal(Signal::STOP);
                // Here elapsed time is the event as well.
                std::thread::sleep(Duration::from_secs(seconds));
                serve.signal(Signal::CONT);
                Some((SERVES[number], How::Stopped(seconds)))
            }
        }
    }

    fn kill_serve(&mut self, number: usize) -> &'static str {
        self.serves[number].kill();
        let again = self.sandboxes()[number].serve();
        self.serves[number] = again;
        SERVES[number]
    }

    pub(super) fn restart_nats(&mut self) {
        self.disturbances.push(Disturbance {
            at: Clock::system().now(),
            what: "nats-server",
            how: How::Killed,
        });
        self.nats.restart();
    }

    /// Returns how many disturbances could cut off an answer to an agent: those of its session, and of its server.
    pub(super) fn disturbances_near(&self, agent: &str, serve: &str) -> usize {
        self.disturbances.iter().filter(|one| one.what == agent || one.what == serve).count()
    }

    /// Returns the last disturbance before a moment, and the time between them.
    pub(super) fn last_disturbance(&self, moment: Timestamp) -> String {
        let before = self.disturbances.iter().rev().find(|one| one.at <= moment);
        before.map_or_else(String::new, |one| format!("{} after: {one}", moment.duration_since(one.at)))
    }

    /// Waits until no message is in flight, and every question has its answer.
    pub(super) fn settle(&self, ledger: &Ledger) -> Result<(), Problems> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let late = runtime.block_on(async {
            let hubs = open_all(self).await;
            let start = std::time::Instant::now();
            let late = loop {
                let waiting = super::verdict::pending_files(&hubs, ledger).await;
                if waiting.is_empty() || start.elapsed() > ARRIVAL {
                    break waiting;
                }
                let _ = tokio::time::timeout(Duration::from_secs(1), hubs[0].changes().next()).await;
            };
            for hub in hubs {
                hub.shut_down().await;
            }
            late
        });
        Problems::none_of(late, self)
    }

    pub(super) fn errors(&self) -> String {
        self.serves.iter().chain([&self.watcher]).map(Running::errors).collect::<Vec<_>>().join("\n---\n")
    }

    /// Terminates all processes; returns the folders of all hubs, and the authority that they need to serve.
    pub(super) fn end(mut self) -> ([Arc<Sandbox>; 3], PrivateCa) {
        end(WATCHER, &mut self.watcher);
        for (what, serve) in SERVES.iter().zip(&mut self.serves) {
            end(what, serve);
        }
        ([self.lab, self.office, self.peers], self.ca)
    }
}

/// Opens all hubs, in the order of [`HUBS`].
pub(super) async fn open_all(stage: &Stage) -> [Hub; 3] {
    [open(&stage.lab).await, open(&stage.office).await, open(&stage.peers).await]
}

/// Opens the hub in this process.
async fn open(sandbox: &Sandbox) -> Hub {
    Hub::open(HubConfig::new(sandbox.file(""))).await.unwrap()
}

fn hub(name: &str, nats: Option<&NatsServer>, agents: &[&str], swarm: Option<Value>) -> Sandbox {
    let sandbox = Sandbox::with_agents(BINARY, agents);
    let mut settings = json!({
        // The worker answers every message, which is within the limits here.
        "hub": { "repliesPerMinute": 1_000_000, "unseenSeconds": 0 },
    });
    if let Some(nats) = nats {
        settings["nats"] = json!({ "url": nats.url(), "hub": name, "presenceSeconds": 4 });
    }
    if let Some(swarm) = swarm {
        settings["swarm"] = swarm;
    }
    sandbox.configure_user(&settings.to_string());
    sandbox
}

fn swarm(ca: &PrivateCa, port: u16) -> Value {
    let folder = ca.file().parent().unwrap().to_owned();
    json!({
        "listen": format!("127.0.0.1:{port}"), "cert": folder.join("cert.pem"), "key": folder.join("key.pem"),
        "ca": ca.file(), "allow": ["127.0.0.0/8"],
        // Fifty messages a second are within the limits here as well.
        "limits": { "perSender": 0, "perSwarm": 0, "perClient": 0 },
    })
}

/// Terminates a process, which must succeed.
fn end(what: &str, process: &mut Running) {
    let status = process.terminate();
    assert!(status.success(), "{what}: {status}: {}", process.errors());
}

/// Returns the file in which an answering program records its process id.
fn prey(lab: &Sandbox, name: &str) -> PathBuf {
    lab.home().join(format!("soak-{name}"))
}

/// Kills an answering program as soon as there is one; returns its name.
fn kill_prey(lab: &Sandbox, name: &'static str) -> Option<&'static str> {
    let file = prey(lab, name);
    poll::within(PREY, || {
        let id: i32 = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
        // Only while the process is the one that wrote the id.
        let command = std::fs::read(format!("/proc/{id}/cmdline")).ok()?;
        let is_it = String::from_utf8_lossy(&command).contains(file.to_str()?);
        (is_it && kill_process(Pid::from_raw(id)?, Signal::KILL).is_ok()).then_some(())
    })?;
    Some(if name == "worker" { "the worker's program" } else { "the watcher's program" })
}

/// Starts a program that answers every message.
fn watch(lab: &Sandbox) -> Running {
    let prey_log = prey(lab, "watcher");
    let program = ["--", "sh", "-c", WATCHES, prey_log.to_str().unwrap()];
    // It processes the messages of its downtime, and answers with an incident where its program was killed.
    let watching = ["watch", "--agent", "qc-1", "--channel", CHANNEL, "--backlog", "1000000", "--incidents"];
    let watch = lab.start(watching.into_iter().chain(program));
    watch.line();
    watch
}

fn wait_for(sandbox: &Sandbox, agent: &str) {
    poll::until(&format!("to know {agent}"), || {
        sandbox.json(["agents"]).iter().any(|known| known["name"] == agent).then_some(())
    });
}

/// Returns the running processes of a folder: those that have it as their home.
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
