//! Many posts at once.

use std::collections::BTreeMap;
use std::io::Write;

use test_support::Running;

use super::messages;
use crate::workspace;

/// Four processes of one agent, each with a thousand posts: nothing lost, nothing twice, everyone's order kept.
#[test]
fn storm_of_four_processes_of_one_agent() {
    const EACH: usize = 1000;
    let sandbox = workspace();
    let serve = sandbox.serve();
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
    let journaled = sandbox.json(["tail", "-n", "10000"]);
    assert_eq!(journaled.len(), 4 * EACH, "the journal has each once, although `serve` read the files along");
    drop::<Running>(serve);
}
