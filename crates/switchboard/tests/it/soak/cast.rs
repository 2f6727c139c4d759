//! The agents: each repeats its work until the test ends.

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Value, json};
use switchboard_sys::clock::Clock;
use test_support::{Sandbox, files, message_file};

use super::ledger::{AcceptedMessage, Ledger};
use super::session::{Received, Session, Target};
use super::stage::CHANNEL;

/// Agents of the lab with a mailbox: by the command line, by dropped files, by MCP.
pub(super) const BOXES: &[&str] =
    &["box-0", "box-1", "box-2", "drop-0", "drop-1", "drop-2", "mcp-0", "mcp-1", "mcp-2", "mcp-3"];

/// Agents of the office.
pub(super) const FAR: &[&str] = &["far-0", "far-1", "far-2", "far-3"];

/// Agents of another owner.
pub(super) const PEERS: &[&str] = &[PEER, "peer-1"];

/// The swarm of the two owners, its member in the lab, and its member at the other owner.
pub(super) const REALM: &str = "research";
pub(super) const MEMBER: &str = "box-0";
pub(super) const PEER: &str = "peer-0";

/// The other agents of the lab: readers of a channel, a watcher, a worker. Those that start a program for each message
/// get fewer messages than those that only have a mailbox.
pub(super) const OTHERS: [&str; 4] = ["chan-0", "chan-1", "qc-1", "parrot"];

/// How an agent writes and reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessMode {
    /// `send` and `wait`.
    CommandLine,
    /// Files in the mailboxes of others.
    Files,
    /// A session, which may be killed.
    Mcp,
    /// `channel post`.
    Channel,
}

/// An agent that writes.
struct Player {
    name: &'static str,
    at: &'static str,
    way: AccessMode,
    /// Pause between two of its messages.
    pause: Duration,
    /// The process that writes for it, or its session.
    target: Target,
    /// The process that reads for it, if that is another one.
    reading: Target,
}

pub(super) struct Cast<'s> {
    lab: &'s Sandbox,
    office: &'s Sandbox,
    peers: &'s Sandbox,
    ledger: &'s Ledger,
    players: Vec<Player>,
    dice: Mutex<Rng>,
    /// Agents start no more messages.
    pub(super) enough: AtomicBool,
    /// Agents stop reading.
    pub(super) over: AtomicBool,
}

/// True if an agent reads over a session; the others read by the command line, or not at all.
pub(super) fn has_session(agent: &str) -> bool {
    agent.starts_with("mcp-") || ["far-0", "far-1"].contains(&agent)
}

impl<'s> Cast<'s> {
    pub(super) fn new([lab, office, peers]: [&'s Sandbox; 3], ledger: &'s Ledger, dice: Rng) -> Self {
        let player = |name: &'static str| {
            // Fifty messages a second in total.
            let (at, way, each) = match name.split_at(name.len() - 2) {
                ("mcp", _) => ("lab", AccessMode::Mcp, 6.0),
                ("drop", _) => ("lab", AccessMode::Files, 4.0),
                ("box", _) => ("lab", AccessMode::CommandLine, 1.0),
                ("chan", _) => ("lab", AccessMode::Channel, 1.0),
                ("far", "-0" | "-1") => ("office", AccessMode::Mcp, 3.0),
                ("peer", _) => ("peers", AccessMode::CommandLine, 1.0),
                _ => ("office", AccessMode::CommandLine, 1.0),
            };
            let pause = Duration::from_secs_f64(1.0 / each);
            Player { name, at, way, pause, target: Target::default(), reading: Target::default() }
        };
        let names = BOXES.iter().chain(&OTHERS[..2]).chain(FAR).chain(PEERS);
        let players = names.map(|name| player(name)).collect();
        let (enough, over) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { lab, office, peers, ledger, players, dice: Mutex::new(dice), enough, over }
    }

    /// Starts all agents. The handles are those of the writers.
    pub(super) fn play<'t>(&'t self, scope: &'t Scope<'t, '_>) -> Vec<ScopedJoinHandle<'t, ()>> {
        let mut writing = Vec::new();
        for player in &self.players {
            let dice = self.dice.lock().unwrap().fork();
            match player.way {
                AccessMode::Mcp => {
                    // It reads on when it has written enough.
                    let written = std::sync::Arc::new(AtomicBool::new(false));
                    let done = written.clone();
                    scope.spawn(move || self.converse(player, dice, &done));
                    writing.push(scope.spawn(move || {
                        while !written.load(Ordering::Relaxed) {
                            std::thread::park_timeout(Duration::from_millis(20));
                        }
                    }));
                }
                way => {
                    writing.push(scope.spawn(move || self.write(player, dice)));
                    if way == AccessMode::CommandLine {
                        scope.spawn(move || self.read(player));
                    }
                }
            }
        }
        writing
    }

    /// Kills one agent's session and returns its name; `None` if it is just starting.
    pub(super) fn kill_a_session(&self, dice: &mut Rng) -> Option<&'static str> {
        let sessions: Vec<&Player> =
            self.players.iter().filter(|player| player.way == AccessMode::Mcp).collect();
        dice.choice(sessions).filter(|player| player.target.kill()).map(|player| player.name)
    }

    /// Requests the end of one agent's session and returns its name; `None` if it is just starting.
    pub(super) fn end_a_session(&self, dice: &mut Rng) -> Option<&'static str> {
        let sessions: Vec<&Player> =
            self.players.iter().filter(|player| player.way == AccessMode::Mcp).collect();
        dice.choice(sessions).filter(|player| player.target.request_end()).map(|player| player.name)
    }

    /// Kills a command of one agent, while it writes or while it waits for mail; returns the agent's name.
    pub(super) fn kill_a_command(&self, dice: &mut Rng) -> Option<&'static str> {
        let uses_commands =
            |player: &&Player| matches!(player.way, AccessMode::CommandLine | AccessMode::Channel);
        let player = dice.choice(self.players.iter().filter(uses_commands).collect::<Vec<_>>())?;
        let targets =
            if dice.bool() { [&player.target, &player.reading] } else { [&player.reading, &player.target] };
        targets.into_iter().any(Target::kill).then_some(player.name)
    }

    fn sandbox(&self, player: &Player) -> &'s Sandbox {
        match player.at {
            "lab" => self.lab,
            "office" => self.office,
            _ => self.peers,
        }
    }

    /// Picks another agent, as this one addresses it.
    fn random_peer(player: &Player, dice: &mut Rng) -> String {
        loop {
            // Agents of another owner know one agent here, and one of them is known here.
            if player.at == "peers" {
                let other = PEERS.iter().find(|name| **name != player.name);
                let own = other.filter(|_| dice.bool()).map(|name| (*name).to_owned());
                return own.unwrap_or_else(|| format!("{MEMBER}@{REALM}"));
            }
            let is_rare = player.way != AccessMode::Files && dice.u8(..16) == 0;
            let (name, at) = match dice.u8(..6) {
                _ if is_rare => (OTHERS[dice.usize(..OTHERS.len())], "lab"),
                0 if player.way != AccessMode::Files => (FAR[dice.usize(..FAR.len())], "office"),
                1 if player.way != AccessMode::Files && player.at == "lab" => (PEER, REALM),
                _ => (BOXES[dice.usize(..BOXES.len())], "lab"),
            };
            if name != player.name {
                return if at == player.at { name.to_owned() } else { format!("{name}@{at}") };
            }
        }
    }

    fn accepted(&self, player: &Player, to: String, text: String) {
        self.ledger
            .record_accepted(text, AcceptedMessage { at: player.at, from: player.name.to_owned(), to });
    }

    /// Writes at its pace, each message by its own process or file.
    fn write(&self, player: &Player, mut dice: Rng) {
        let (sandbox, mut next) = (self.sandbox(player), Instant::now());
        for number in 0.. {
            std::thread::park_timeout(next.saturating_duration_since(Instant::now()));
            if self.enough.load(Ordering::Relaxed) {
                return;
            }
            next += player.pause;
            let to = Self::random_peer(player, &mut dice);
            let text = format!("{} {number}", player.name);
            match player.way {
                AccessMode::Files => {
                    let now = Clock::system().now();
                    let id =
                        format!("msg_{}_{}x{number:05}", now.as_millisecond(), player.name.replace('-', ""));
                    let file = message_file(&id, player.name, &to, &text, Some(&format!("{now:.3}")));
                    files::put_by_rename(sandbox.file(&format!("inbox/{to}/{id}.json")), file);
                }
                AccessMode::Channel => {
                    let post = ["channel", "post", "--agent", player.name, "--channel", CHANNEL];
                    let post = post.into_iter().chain(["--to", &to, "--text", &text]);
                    if !Self::is_accepted(player, &mut sandbox.command(post)) {
                        continue;
                    }
                }
                AccessMode::CommandLine | AccessMode::Mcp => {
                    let send = ["--from", player.name, "send", &to, &text];
                    if !Self::is_accepted(player, &mut sandbox.command(send)) {
                        continue;
                    }
                }
            }
            self.accepted(player, to, text);
        }
    }

    /// Runs a command that sends a message; true if it was accepted. A printed id means accepted, also without
    /// delivery; a command killed before it printed the id has promised nothing.
    fn is_accepted(player: &Player, command: &mut Command) -> bool {
        let ran = player.target.run(command);
        let is_accepted = ran.stdout.ends_with('\n');
        assert!(ran.code.is_none() || (is_accepted && matches!(ran.code, Some(0 | 3))), "{ran:?}");
        is_accepted
    }

    /// Waits for mail by the command line.
    fn read(&self, player: &Player) {
        while !self.over.load(Ordering::Relaxed) {
            let wait = ["--from", player.name, "wait", "--timeout", "2s", "--json"];
            let ran = player.reading.run(&mut self.sandbox(player).command(wait));
            assert!(matches!(ran.code, Some(0 | 3) | None), "{ran:?}");
            // The caller sees that the command was killed, and does not use its output.
            if ran.code.is_none() {
                continue;
            }
            for line in ran.stdout.lines() {
                let shown: Value = serde_json::from_str(line).unwrap();
                if let Some(id) = shown["id"].as_str() {
                    self.ledger.record_shown(player.name, id);
                }
            }
        }
    }

    /// Writes and waits for mail over one session, and over the next one if that is killed or terminated.
    fn converse(&self, player: &Player, mut dice: Rng, written: &AtomicBool) {
        let (mut number, mut next) = (0, Instant::now());
        // A message without a known outcome is sent again with the same idempotency key.
        let mut sending: Option<(String, String)> = None;
        loop {
            let Some(mut session) = Session::open(self.sandbox(player), player.name, &player.target) else {
                continue;
            };
            let (mut waiting, mut sent) = (None, None);
            loop {
                let is_enough = self.enough.load(Ordering::Relaxed);
                written.store(is_enough && sending.is_none(), Ordering::Relaxed);
                if self.over.load(Ordering::Relaxed) {
                    return session.close();
                }
                session.end_if_requested();
                if waiting.is_none() && !session.is_ending() {
                    waiting = Some(session.call("wait_for_message", &json!({ "timeout": 5 })));
                }
                if sending.is_none() && !is_enough && !session.is_ending() && Instant::now() >= next {
                    next += player.pause;
                    sending =
                        Some((Self::random_peer(player, &mut dice), format!("{} {number}", player.name)));
                    number += 1;
                }
                if let Some((to, text)) = sending.as_ref().filter(|_| sent.is_none() && !session.is_ending())
                {
                    let arguments = json!({
                        "recipient": to, "action": "status_update", "payload": text, "idempotencyKey": text,
                    });
                    sent = Some(session.call("send_message", &arguments));
                }
                match session.receive(Duration::from_millis(20)) {
                    Received::Ended => {
                        session.must_have_ended_well();
                        break;
                    }
                    Received::Answer(id, answer) if Some(id) == waiting => {
                        waiting = None;
                        let shown = answer.unwrap_or_else(|problem| panic!("{}: {problem}", player.name));
                        for message in shown["messages"].as_array().unwrap() {
                            self.ledger.record_shown(player.name, message["id"].as_str().unwrap());
                        }
                    }
                    Received::Answer(id, answer) if Some(id) == sent => {
                        sent = None;
                        answer.unwrap_or_else(|problem| panic!("{}: {problem}", player.name));
                        let (to, text) = sending.take().unwrap();
                        self.accepted(player, to, text);
                    }
                    Received::Answer(..) | Received::Nothing => {}
                }
            }
        }
    }
}
