//! `bench hubs`: cost of one more linked hub for the other hubs, the server and the machine.
//!
//! Runs real `serve` processes with ten agents each on one real nats-server, first idle and then with messages, posts
//! and presence changes. The load per hub is the same for every number of hubs, and a channel always has readers on
//! five hubs, so any growth is due to the link. The figures are extrapolated linearly to a thousand hubs.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use switchboard_core::{Address, AgentId, Door, GroupId, Kind, Name, Route};
use switchboard_hub::{Draft, Hub, HubConfig, Registration};
use test_support::nats::{NatsServer, Release};
use test_support::{Running, Sandbox, files, ports};

use crate::figure::Figure;
use crate::program::{build_shipped, shipped};
use crate::progress::say;
use crate::run_folder::RunFolder;

const BENCH: &str = "hubs";

/// Number of agents per hub.
const AGENTS: usize = 10;

/// Number of hubs with readers of one channel.
const READERS: usize = 5;

/// Interval of each agent's messages. One message in five goes to a channel.
const SENDS: Duration = Duration::from_secs(30);

/// Interval of each agent's heartbeats. Of ten agents, two change their activity within 30 s.
const BEATS: Duration = Duration::from_secs(10);

/// Text length of a message, in bytes.
const BODY: usize = 2048;

/// Timeout for the hubs to discover each other.
const PATIENCE: Duration = Duration::from_mins(5);

/// Number of hubs to which the figures are extrapolated.
const FAR: f64 = 1000.0;

pub(crate) async fn run(place: &RunFolder, quick: bool) -> anyhow::Result<()> {
    let (counts, window): (&[usize], _) =
        if quick { (&[5, 10], Duration::from_secs(8)) } else { (&[5, 10, 25, 50], Duration::from_secs(30)) };
    build_shipped().await?;
    let mut measured: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
    for &count in counts {
        let hubs = Hubs::start(place, count).await?;
        for phase in ["idle", "busy"] {
            for (metric, value) in hubs.measure(phase, window).await? {
                measured.entry((phase, metric)).or_default().push((as_f64(count), value));
            }
        }
        hubs.end().await;
        say!("measured {count} hubs");
    }
    let mut table = String::from("| |");
    for count in counts {
        write!(table, " {count} hubs |")?;
    }
    write!(table, " 1,000 hubs, extrapolated |\n|---|{}", "---|".repeat(counts.len() + 1))?;
    for ((phase, metric), points) in &measured {
        write!(table, "\n| {phase}: {metric} |")?;
        for (_, value) in points {
            write!(table, " {value:.2} |")?;
        }
        write!(table, " {:.2} |", line_at(points, FAR))?;
        let (Some((_, first)), Some((most, last))) = (points.first(), points.last()) else { continue };
        let name = format!("{phase}: {metric}, {most} hubs");
        Figure::new(BENCH, name, *last, "per hub", 1).with_baseline("5 hubs", *first).print()?;
    }
    say!("{table}");
    Ok(())
}

/// Linked hubs on one server, with their agents.
struct Hubs {
    server: NatsServer,
    monitor: u16,
    members: Vec<One>,
}

struct One {
    sandbox: Sandbox,
    serve: Running,
    hub: Hub,
}

/// Resources that the server and the hubs have used so far.
struct Usage {
    server: Value,
    server_ticks: u64,
    hub_ticks: u64,
    at: Instant,
}

impl Hubs {
    async fn start(place: &RunFolder, count: usize) -> anyhow::Result<Self> {
        let (program, folder, monitor) = (shipped()?, place.fresh()?, ports::free_port());
        let server = NatsServer::start(Release::Newest, &format!("http: \"127.0.0.1:{monitor}\""));
        let server = server.map_err(anyhow::Error::msg)?;
        let mut hubs = Vec::with_capacity(count);
        for number in 0..count {
            let sandbox = Sandbox::in_folder(&program, &folder);
            let agents: Vec<String> = (0..AGENTS).map(|agent| agent_name(number, agent)).collect();
            sandbox.ok(["init".to_owned()].iter().chain(&agents));
            let nats = json!({ "nats": { "url": server.url(), "hub": hub_name(number) } });
            sandbox.configure_user(&nats.to_string());
            let hub = Hub::open(HubConfig::new(sandbox.file(""))).await?;
            let channel = channel(number)?;
            for agent in agents {
                let routes = vec![Route::Channel { channel: channel.clone() }];
                let name = Name::parse(&agent)?;
                hub.agents().register(Registration { name, role: None, team: None, routes }).await?;
            }
            let serve = sandbox.serve();
            hubs.push(One { sandbox, serve, hub });
        }
        let all = Self { server, monitor, members: hubs };
        for number in 0..count {
            all.beat(number, 0)?;
        }
        all.wait_until_known().await?;
        Ok(all)
    }

    /// Waits until every hub knows every agent of the other hubs and the agent's channel.
    async fn wait_until_known(&self) -> anyhow::Result<()> {
        let expected = (self.members.len() - 1) * AGENTS;
        let began = Instant::now();
        for member in &self.members {
            loop {
                let directory = member.hub.directory().await?;
                let reads = |route: &Route| matches!(route, Route::Channel { .. });
                let known = directory.agents().filter(|agent| agent.hub().is_some());
                if known.filter(|agent| agent.routes.iter().any(reads)).count() >= expected {
                    break;
                }
                ensure!(
                    began.elapsed() < PATIENCE,
                    "hubs do not hear of each other: {}",
                    member.serve.errors()
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(())
    }

    /// Measures the average load per hub, either while idle or while agents are active.
    async fn measure(&self, phase: &str, window: Duration) -> anyhow::Result<Vec<(&'static str, f64)>> {
        // During this pause, work that is left over from the start and the previous phase finishes.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let before = self.usage()?;
        if phase == "busy" {
            self.work(window).await?;
        } else {
            tokio::time::sleep(window).await;
        }
        let after = self.usage()?;
        let (seconds, hubs) = (after.at.duration_since(before.at).as_secs_f64(), as_f64(self.members.len()));
        let rate = |key: &str| {
            let count = |usage: &Usage| usage.server[key].as_f64().unwrap_or_default();
            (count(&after) - count(&before)) / seconds / hubs
        };
        // A tick is a hundredth of a second on every relevant Linux.
        let share = |ticks: u64| as_f64(usize::try_from(ticks).unwrap_or_default()) / seconds;
        let memory =
            self.members.iter().map(|member| resident_mb(member.serve.id())).sum::<anyhow::Result<f64>>()?;
        Ok(vec![
            ("messages/s to a hub", rate("out_msgs")),
            ("kB/s to a hub", rate("out_bytes") / 1e3),
            ("messages/s from a hub", rate("in_msgs")),
            ("kB/s from a hub", rate("in_bytes") / 1e3),
            ("% of a core, a hub", share(after.hub_ticks - before.hub_ticks) / hubs),
            ("% of a core, the server", share(after.server_ticks - before.server_ticks)),
            ("MB of memory, a hub", memory / hubs),
        ])
    }

    fn usage(&self) -> anyhow::Result<Usage> {
        let hub_ticks =
            self.members.iter().map(|member| cpu_ticks(member.serve.id())).sum::<anyhow::Result<u64>>()?;
        let server_ticks = cpu_ticks(self.server.id().context("the server has ended")?)?;
        Ok(Usage { server: varz(self.monitor)?, server_ticks, hub_ticks, at: Instant::now() })
    }

    /// Sends the messages and heartbeats of all agents during the window.
    async fn work(&self, window: Duration) -> anyhow::Result<()> {
        let (count, body) = (self.members.len(), "x".repeat(BODY));
        let agents = count * AGENTS;
        let (began, mut sent, mut beaten) = (Instant::now(), 0, 0);
        let due = |every: Duration| {
            let share = began.elapsed().as_millis() * agents as u128 / every.as_millis();
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        while began.elapsed() < window {
            while sent < due(SENDS) {
                // Consecutive senders are on different hubs, so that the load is spread.
                let (number, agent) = (sent % count, sent / count % AGENTS);
                let to = if sent % 5 == 4 {
                    Address::Group(GroupId::Channel(channel(number)?))
                } else {
                    let other = (number + 1 + sent % (count - 1)) % count;
                    let other = if other == number { (number + 1) % count } else { other };
                    Address::Agent(format!("{}@{}", agent_name(other, agent), hub_name(other)).parse()?)
                };
                let hub = &self.members[number].hub;
                let from: AgentId = agent_name(number, agent).parse()?;
                let draft = hub.draft(Door::Workspace, from, to, Kind::status_update(), body.clone());
                hub.submit(Draft { verified: true, ..draft }).await?;
                sent += 1;
            }
            while beaten < due(BEATS) / AGENTS {
                self.beat(beaten % count, beaten / count)?;
                beaten += 1;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Writes the heartbeats of a hub's agents, as their watchers do.
    fn beat(&self, number: usize, round: usize) -> anyhow::Result<()> {
        let member = &self.members[number];
        let folder = member.sandbox.file("signals/presence");
        std::fs::create_dir_all(&folder)?;
        let now = member.hub.now().to_string();
        for agent in 0..AGENTS {
            let substate = if ((round + agent) / 6).is_multiple_of(2) { "IDLE" } else { "WORKING" };
            let name = agent_name(number, agent);
            let file = json!({ "agent_id": name, "timestamp": now, "state": "AWAKE", "substate": substate });
            files::put_by_rename(folder.join(format!("{name}.json")), file.to_string());
        }
        Ok(())
    }

    async fn end(self) {
        for mut one in self.members {
            one.serve.kill();
            one.hub.shut_down().await;
        }
    }
}

fn hub_name(number: usize) -> String {
    format!("hub-{number}")
}

fn agent_name(hub: usize, agent: usize) -> String {
    format!("agent-{hub}-{agent}")
}

fn channel(hub: usize) -> anyhow::Result<Name> {
    Ok(Name::parse(&format!("channel-{}", hub / READERS))?)
}

/// Reads the counters of the NATS server from its `/varz` endpoint.
fn varz(port: u16) -> anyhow::Result<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /varz HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("the server answers without a body")?;
    Ok(serde_json::from_str(body)?)
}

/// Returns the CPU time of a process, in hundredths of a second.
fn cpu_ticks(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The program name, in parentheses, may contain any character.
    let (_, fields) = stat.rsplit_once(')').context("no process")?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next().context("a short /proc/stat").and_then(|field| Ok(field.parse::<u64>()?));
    Ok(next()? + next()?)
}

fn resident_mb(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no memory")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1e3)
}

#[expect(clippy::cast_precision_loss, reason = "counts of hubs and ticks")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

/// Returns the value at `x` of the least-squares line through these points.
fn line_at(points: &[(f64, f64)], x: f64) -> f64 {
    let count = as_f64(points.len());
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    mean_y + slope * (x - mean_x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_fits_points() {
        let points = [(5.0, 11.0), (10.0, 21.0), (50.0, 101.0)];
        assert!((line_at(&points, 1000.0) - 2001.0).abs() < 1e-6);
    }
}
