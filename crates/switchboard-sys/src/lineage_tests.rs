use super::*;

fn process(pid: u32, parent: u32, program: &str, arguments: &[&str]) -> ProcessInfo {
    let arguments = arguments.iter().map(Into::into).collect();
    ProcessInfo { pid, parent, program: program.to_owned(), arguments }
}

#[test]
fn launch_round_trips() {
    for kind in LaunchKind::ALL {
        let launch = Launch::by_this_process(kind, "a reviewer of two");
        assert_eq!(launch.to_string().parse(), Ok(launch));
    }
    for bad in ["", "run", "run a/1/2", "walk a/1/2 codex", "run a/x/2 codex"] {
        assert!(bad.parse::<Launch>().is_err(), "{bad}");
    }
}

#[test]
fn verb_follows_options_and_values() {
    let verb_of = |arguments: &[&str]| verb(&process(5, 1, PROGRAM, arguments));
    assert_eq!(
        verb_of(&["--from", "mcp", "-v", "--workspace", "/w", "send", "mcp"]).as_deref(),
        Some("send")
    );
    assert_eq!(verb_of(&["--from=send", "mcp"]).as_deref(), Some("mcp"));
    assert_eq!(verb_of(&["--from"]), None);
}

#[test]
fn ancestor_of_ours_is_evidence() {
    let run = process(7, 1, PROGRAM, &["run", "--name", "codex"]);
    let chain = vec![process(u32::MAX, 8, PROGRAM, &[]), process(u32::MAX - 1, 7, "sh", &[]), run.clone()];
    let lineage = Lineage::of(chain, false);
    assert_eq!(lineage.evidence(), Some(Evidence::Descendant(run.clone())));
    assert_eq!(Evidence::Descendant(run).to_string(), "`switchboard run` (process 7) started it");
}

#[test]
fn unrelated_processes_are_no_evidence() {
    let chain = vec![process(u32::MAX, 8, PROGRAM, &[]), process(u32::MAX - 1, 1, "claude", &[])];
    let lineage = Lineage::of(chain, false);
    assert_eq!((lineage.evidence(), lineage.launch(), lineage.foreign_launch()), (None, None, None));
}
