//! `install` and `uninstall`, killed at every single file call. A client finds its old settings or the new ones, and
//! their owner finds a copy of the old ones.

use std::path::Path;

use test_support::fault::{Fault, Shim};
use test_support::{RunOutput, Sandbox, files, tools};

use crate::workspace;

/// The files that both verbs write.
const FILES: [&str; 2] = [".mcp.json", ".claude/settings.local.json"];

/// After this number of surviving runs there are no more calls to be killed at.
const SURVIVORS: usize = 3;

fn texts(sandbox: &Sandbox) -> [String; 2] {
    FILES.map(|file| std::fs::read_to_string(sandbox.path().join(file)).unwrap())
}

/// Returns the files next to the settings: unfinished ones, and the content of copies.
fn other_files(sandbox: &Sandbox) -> (Vec<String>, Vec<String>) {
    let (mut unfinished, mut copies) = (Vec::new(), Vec::new());
    for folder in [sandbox.path().to_owned(), sandbox.path().join(".claude")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if name.starts_with(".tmp-") {
                unfinished.push(name);
            } else if name.contains(".backup-") {
                copies.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    (unfinished, copies)
}

/// Creates a workspace whose owner has settings of their own.
fn with_settings() -> Sandbox {
    let sandbox = workspace();
    files::put(
        sandbox.path().join(FILES[0]),
        "{ \"mcpServers\": { \"other\": { \"command\": \"other\" } } }\n",
    );
    files::put(
        sandbox.path().join(FILES[1]),
        "{\n  // mine\n  \"permissions\": { \"allow\": [\"Bash(ls)\"] }\n}\n",
    );
    sandbox
}

fn killed(shim: &Shim, template: &Sandbox, verb: &str, fault: fn(usize) -> Fault) {
    let args = [verb, "claude"];
    let old = texts(template);
    let whole = template.copy();
    let calls = shim.count(&mut whole.command(args));
    let new = texts(&whole);
    assert!(calls > 4 && old != new, "{calls} calls");
    let (mut kills, mut survivors) = (0, 0);
    for at in 1..=calls + SURVIVORS {
        let sandbox = template.copy();
        let (_, copies_before) = other_files(&sandbox);
        let ran = RunOutput::of(shim.arm(&mut sandbox.command(args), fault(at)));
        let (_, copies) = other_files(&sandbox);
        for ((now, old), new) in texts(&sandbox).iter().zip(&old).zip(&new) {
            assert!(now == old || now == new, "{verb} at {at}: {now:?}");
            let is_kept = copies.len() > copies_before.len() && copies.contains(old);
            assert!(now == old || is_kept, "{verb} at {at}: no copy of {old:?} in {copies:?}");
        }
        if ran.code.is_some() {
            survivors += 1;
            continue;
        }
        kills += 1;
        sandbox.ok(args);
        assert_eq!(texts(&sandbox), new, "{verb} at {at}");
        let (unfinished, _) = other_files(&sandbox);
        assert_eq!(unfinished, Vec::<String>::new(), "{verb} at {at}");
    }
    println!("{verb}: killed {kills} times");
    assert!(kills > calls / 2 && survivors > 0, "{kills} kills and {survivors} survivors of {calls} calls");
}

#[test]
fn crash_at_every_call_of_install() {
    let test = "crash_at_every_call_of_install";
    let shim = match Shim::get(Path::new(env!("CARGO_TARGET_TMPDIR"))) {
        Ok(shim) => shim,
        Err(reason) => return tools::skip(test, &reason),
    };
    let fresh = with_settings();
    let installed = with_settings();
    installed.ok(["install", "claude"]);
    for fault in [(|at| Fault::Kill { at }) as fn(usize) -> Fault, |at| Fault::Tear { at }] {
        killed(&shim, &fresh, "install", fault);
        killed(&shim, &installed, "uninstall", fault);
    }
}
