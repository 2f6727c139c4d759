use super::*;

#[test]
fn chain_begins_with_process_itself() {
    let chain = process_and_ancestors(std::process::id());
    assert_eq!(chain[0].pid, std::process::id());
    assert_eq!(chain[1].pid, std::os::unix::process::parent_id());
    assert!(chain.windows(2).all(|pair| pair[0].parent == pair[1].pid), "{chain:?}");
    assert!(process_and_ancestors(0).is_empty());
}

#[test]
fn listing_finds_this_process_too() {
    let all = listing::all();
    let this = all.iter().find(|process| process.pid == std::process::id()).expect("this process");
    assert_eq!(this.parent, std::os::unix::process::parent_id());
    let line = "  4711     1 /usr/local/bin/switchboard --workspace /w mcp";
    let parsed = ProcessInfo {
        pid: 4711,
        parent: 1,
        program: "switchboard".to_owned(),
        arguments: ["--workspace", "/w", "mcp"].map(OsString::from).to_vec(),
    };
    assert_eq!(listing::parse(line), Some(parsed));
    assert_eq!(listing::parse("PID PPID COMMAND"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn program_names_may_hold_parentheses() {
    assert_eq!(os::parse_parent("7 (a) (b c)) S 5 7 7 0"), Some(5));
    assert_eq!(os::parse_parent("7 (a"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn processes_are_found_by_program() {
    let this = process_and_ancestors(std::process::id()).remove(0);
    let found = processes_of_program(&[&this.program]);
    assert!(found.contains(&this), "{found:?}");
    assert!(shares_stdin(this.pid, this.pid));
    assert_eq!(process_variable(this.pid, "PATH"), std::env::var("PATH").ok());
    assert_eq!(process_variable(this.pid, "NO_SUCH_VARIABLE"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn activity_is_read_after_the_name() {
    let stat = "7 (a) (b c)) S 5 7 7 0 -1 4194304 1 2 3 4 10 20 300 4000 20 0 1 0 99";
    assert_eq!(os::parse_activity(stat), Some(Activity { ticks: 4330, is_running: false }));
    assert_eq!(os::parse_activity(&stat.replace(") S", ") R")).map(|it| it.is_running), Some(true));
    assert_eq!(os::parse_activity("7 (a"), None);
    assert!(activity(std::process::id()).is_some());
}
