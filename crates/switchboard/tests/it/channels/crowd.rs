//! Concurrent posts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use test_support::Running;

use super::messages;
use crate::workspace;

/// Four processes of one agent, each with a thousand posts: none lost, none duplicated, order per sender.
#[test]
fn storm_of_four_processes_of_agent() {
    const EACH: usize = 1000;
    let sandbox = workspace();
    let serve = sandbox.serve();
    let reader = sandbox.start(["channel", "tail", "--channel", "general", "--json"]);
    let posters: Vec<_> = (0..4)
        .map(|number| {
            let mut command = sandbox.command([
                "channel",
                "post",
                "--agent",
                "qc-1",
                "--channel",
                "general",
                "--each-line",
            ]);
            let mut child = command
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::inherit())
                .spawn()
                .unwrap();
            let lines: Vec<String> = (0..EACH).map(|line| format!("{number}/{line}")).collect();
            let mut input = child.stdin.take().unwrap();
            (child, std::thread::spawn(move || writeln!(input, "{}", lines.join("\n")).unwrap()))
        })
        .collect();
    for (mut child, writer) in posters {
        assert!(child.wait().unwrap().success());
        writer.join().unwrap();
    }
    let files = std::fs::read_dir(sandbox.file("channels/general")).unwrap().count();
    assert_eq!(files, 4 * EACH);
    let mut lines: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for message in messages(&sandbox) {
        let (number, line) = message["content"]["text"].as_str().unwrap().split_once('/').unwrap();
        lines.entry(number.to_owned()).or_default().push(line.parse().unwrap());
    }
    for (number, lines) in lines {
        assert_eq!(lines, (0..EACH).collect::<Vec<_>>(), "the order of {number}");
    }
    let mut shown = BTreeSet::new();
    for _ in 0..4 * EACH {
        let message: serde_json::Value = serde_json::from_str(&reader.line()).unwrap();
        assert!(shown.insert(message["id"].as_str().unwrap().to_owned()), "{message} came twice");
    }
    assert_eq!(reader.line_within(std::time::Duration::from_millis(500)), None, "a reader saw each once");
    let journaled = sandbox.json(["tail", "-n", "10000"]);
    assert_eq!(journaled.len(), 4 * EACH, "the journal has each once, although `serve` read the files along");
    drop::<Running>(serve);
}
