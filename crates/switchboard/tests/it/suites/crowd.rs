//! Many clients of one server: every answer reaches its caller.

use std::thread;
use std::time::Instant;

use serde_json::{Value, json};
use test_support::TestServer;
use test_support::mcp::Client;

use super::{add, call, fixture, sandbox};

const HOSTS: usize = 100;
const CALLS: usize = 100;

#[test]
fn hundred_hosts_share_one_server() {
    let sandbox = sandbox();
    add(&sandbox, "echo", &fixture("echo.py"));
    let mut served = TestServer::start(&sandbox);
    let began = Instant::now();
    thread::scope(|scope| {
        let running: Vec<_> = (0..HOSTS)
            .map(|host| {
                let mut client = Client::streamable(&served, None);
                scope.spawn(move || query_server(host, &mut client))
            })
            .collect();
        for host in running {
            host.join().unwrap();
        }
    });
    println!("{} calls of {HOSTS} hosts in {:.1?}", HOSTS * CALLS, began.elapsed());
    let status: Vec<Value> = sandbox.json(["suite", "list"]);
    assert_eq!(status.len(), 1);
    assert_eq!(served.running.terminate().code(), Some(0), "{}", served.running.errors());
}

fn query_server(host: usize, client: &mut Client) {
    for number in 0..CALLS {
        let sent = json!({ "host": host, "call": number });
        let arguments = call("echo", sent.clone());
        let result =
            client.request("tools/call", json!({ "name": "echo_suite", "arguments": arguments })).unwrap();
        assert_eq!(result["structuredContent"], sent);
    }
}
