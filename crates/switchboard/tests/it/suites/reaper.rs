//! No process of a server outlives the server, however detached it is and however the server ends.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use switchboard_sys::platform::{process_and_ancestors, process_started};
use test_support::mcp::Client;
use test_support::{Running, Sandbox, poll};

use super::{add, call, sandbox};

/// Servers of one host. Each starts a plain child, one in its own session, and one without its parent, its session and
/// its environment.
const SERVERS: usize = 5;

/// With [`SERVERS`], how often each kind of end is tested.
const ROUNDS: usize = 2;

/// Processes of one server, itself included.
const EACH: usize = 4;

/// Every process ignores all signals that can be ignored, records its process id and stays. The server answers once all
/// have recorded theirs.
const SCRIPT: &str = r#"
trap '' TERM HUP INT
stay='trap "" TERM HUP INT; echo $$ >> "$1"; exec sleep 1000'
sh -c "$stay" sh "$1" < /dev/null > /dev/null 2>&1 &
setsid sh -c "$stay" sh "$1" < /dev/null > /dev/null 2>&1 &
( env -i "$(command -v setsid)" "$(command -v sh)" -c "PATH=$PATH; $stay" sh "$1" < /dev/null > /dev/null 2>&1 & )
echo $$ > "$1.leader"
echo $$ >> "$1"
while [ $(($(wc -l < "$1") % 4)) != 0 ]; do sleep 0.01; done
while read -r line; do
  id=${line#*'"id":'}
  id=${id%%,*}
  case "$line" in
    *'"initialize"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}' ;;
    *'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"tools":[{"name":"here","inputSchema":{"type":"object"}}]}}' ;;
    *'"tools/call"'*) echo '{"jsonrpc":"2.0","id":'"$id"',"result":{"content":[]}}' ;;
  esac
done
while :; do sleep 1000; done
"#;

/// A workspace whose servers detach their children.
struct Stage {
    sandbox: Sandbox,
    client: Client,
}

impl Stage {
    fn new(idle: Option<u64>) -> Self {
        let sandbox = sandbox();
        if let Some(idle) = idle {
            let config = json!({ "suites": { "s0": { "idleMs": idle } } });
            test_support::files::put(sandbox.path().join("switchboard.config.json"), config.to_string());
        }
        test_support::files::put(sandbox.path().join("detach.sh"), SCRIPT);
        let script = sandbox.path().join("detach.sh").display().to_string();
        for number in 0..SERVERS {
            let pids = sandbox.path().join(format!("pids{number}")).display().to_string();
            add(&sandbox, &format!("s{number}"), &["sh".to_owned(), script.clone(), pids]);
        }
        // Without a shell in between: signals are for the host itself.
        let client = Client::stdio(Running::start_with_stdin(&mut sandbox.command(["mcp"])));
        Self { sandbox, client }
    }

    fn file(&self, server: usize) -> PathBuf {
        self.sandbox.path().join(format!("pids{server}"))
    }

    fn pids(&self, server: usize) -> BTreeSet<u32> {
        let text = std::fs::read_to_string(self.file(server)).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Returns the server's own process.
    fn leader(&self, server: usize) -> u32 {
        let text = std::fs::read_to_string(self.file(server).with_extension("leader")).unwrap();
        text.trim().parse().unwrap()
    }

    /// Starts or restarts a server, and returns all processes that it ever had when the new ones run.
    fn start(&mut self, server: usize) -> BTreeSet<u32> {
        let before = self.pids(server).len();
        // A call may still reach the old server and fail with it; a later one starts the new server.
        poll::until("the new server to answer", || {
            let begun = self.client.start_call(&format!("s{server}_suite"), call("here", json!({})));
            let _ = self.client.answer(begun);
            (self.pids(server).len() > before).then_some(())
        });
        // A server that was stopped between two calls has been started more than once.
        let all = || Some(self.pids(server)).filter(|all| all.len() > before && all.len() % EACH == 0);
        poll::until("all processes to write", all)
    }

    fn start_all(&mut self) -> BTreeSet<u32> {
        let begun: Vec<i64> = (0..SERVERS)
            .map(|server| self.client.start_call(&format!("s{server}_suite"), call("here", json!({}))))
            .collect();
        for id in begun {
            self.client.answer(id).unwrap();
        }
        let all = || -> BTreeSet<u32> { (0..SERVERS).flat_map(|server| self.pids(server)).collect() };
        poll::until("all processes to write", || Some(all()).filter(|all| all.len() == SERVERS * EACH))
    }
}

fn alive(pids: &BTreeSet<u32>) -> Vec<u32> {
    pids.iter().copied().filter(|pid| process_started(*pid).is_some()).collect()
}

fn assert_ended(pids: &BTreeSet<u32>) {
    let left = poll::within(poll::TIMEOUT, || Some(alive(pids)).filter(Vec::is_empty));
    assert!(left.is_some(), "there are still {:?}", alive(pids));
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Returns the reaper of a server's process and the root above it.
fn reapers(pid: u32, host: u32) -> (u32, u32) {
    let above = process_and_ancestors(pid);
    let place = above.iter().position(|process| process.pid == host).expect("the host is above it");
    (above[place - 2].pid, above[place - 1].pid)
}

fn end_host(end: impl Fn(&mut Client)) {
    for _ in 0..ROUNDS {
        let mut stage = Stage::new(None);
        let all = stage.start_all();
        assert_eq!(alive(&all).len(), SERVERS * EACH);
        end(&mut stage.client);
        assert_ended(&all);
    }
}

#[test]
fn storm_host_loses_its_stdin() {
    end_host(|client| client.process().close_stdin());
}

#[test]
fn storm_host_is_terminated() {
    end_host(|client| client.process().signal(Signal::TERM));
}

#[test]
fn storm_host_is_interrupted() {
    end_host(|client| client.process().signal(Signal::INT));
}

#[test]
fn storm_host_is_killed() {
    end_host(|client| client.process().kill());
}

#[test]
fn storm_host_and_root_are_killed() {
    for _ in 0..ROUNDS {
        let mut stage = Stage::new(None);
        let all = stage.start_all();
        let (_, root) = reapers(stage.leader(0), stage.client.process().id());
        kill(root);
        stage.client.process().kill();
        assert_ended(&all);
    }
}

#[test]
fn storm_idle_server_is_stopped() {
    let mut stage = Stage::new(Some(50));
    for _ in 0..ROUNDS {
        assert_ended(&stage.start(0));
    }
    assert!(stage.client.process().is_running());
}

#[test]
fn storm_crashed_server_exits_before_the_next() {
    let mut stage = Stage::new(None);
    for server in 0..SERVERS {
        let mut before = stage.start(server);
        for _ in 0..ROUNDS {
            kill(stage.leader(server));
            let all = stage.start(server);
            assert_eq!(alive(&before), [0; 0], "the old one was gone before the new one ran");
            before = all;
        }
    }
}

#[test]
fn storm_reaper_is_killed() {
    let mut stage = Stage::new(None);
    let host = stage.client.process().id();
    for server in 0..SERVERS {
        for round in 0..ROUNDS {
            let all = stage.start(server);
            let (reaper, root) = reapers(stage.leader(server), host);
            kill(if round % 2 == 0 { reaper } else { root });
            assert_ended(&all);
        }
    }
    assert!(stage.client.process().is_running());
}
