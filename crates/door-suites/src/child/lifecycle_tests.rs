use std::path::Path;

use serde_json::json;
use switchboard_sys::files::Dir;
use switchboard_sys::platform::process_started;

use super::test_child::{DEADLINE, call, child, child_with, text, until, with_timeout};
use super::*;
use crate::spec::{Framing, Launch};

fn set_framing(spec: &mut ChildSpec, wanted: Framing) {
    if let Launch::Stdio { framing, .. } = &mut spec.launch {
        *framing = wanted;
    }
}

#[tokio::test]
async fn concurrent_callers_share_one_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let starts = dir.path().join("starts");
    let child = child("slow.py", &[&starts.display().to_string()]);
    let impatient = Caller::default();
    impatient.cancelled.cancel();
    let calls = (0..20).map(|_| text(&child, "any"));
    let (gone, answers) = tokio::join!(child.open(&impatient), futures_util::future::join_all(calls));
    assert!(matches!(gone, Err(ChildError::Cancelled)), "{gone:?}");
    for answer in answers {
        assert_eq!(answer.expect("an answer"), "at last");
    }
    assert_eq!(std::fs::read_to_string(&starts).expect("it wrote"), "x");
}

#[tokio::test]
async fn crash_fails_calls_then_child_restarts() {
    let child = child("mortal.py", &[]);
    let mut events = child.events();
    let first = text(&child, "pid").await.expect("an answer");
    let error = text(&child, "die").await.expect_err("it dies").to_string();
    assert!(
        error.contains("`fixture` disconnected before it answered: it ended (exit status: 3)"),
        "{error}"
    );
    assert!(error.contains("its last output was \"I am dying\""), "{error}");
    let Ok(ChildEvent::Stopped { reason }) = with_timeout(events.recv()).await else { panic!("it stopped") };
    assert_eq!(reason, "it ended (exit status: 3)");
    let second = text(&child, "pid").await.expect("an answer");
    assert_ne!(first, second);
    let counts = child.status().counts;
    assert_eq!((counts.starts, counts.crashes, counts.failed_starts), (2, 1, 0));
}

#[tokio::test]
async fn failing_child_opens_the_circuit() {
    let child = child_with("echo.py", &[], |spec, _| {
        if let Launch::Stdio { command, args, .. } = &mut spec.launch {
            (*command, *args) =
                ("sh".to_owned(), vec!["-c".to_owned(), "echo no key >&2; exit 1".to_owned()]);
        }
    });
    for _ in 0..3 {
        let error = text(&child, "any").await.expect_err("it does not start");
        assert!(matches!(error, ChildError::CannotStart { .. }), "{error}");
        assert!(error.to_string().contains("its last output was \"no key\""), "{error}");
    }
    let error = text(&child, "any").await.expect_err("it is left alone");
    assert!(matches!(error, ChildError::CircuitOpen { failures: 3, .. }), "{error}");
    assert!(error.to_string().contains("no key"), "{error}");
    assert!(matches!(child.status().state, ChildState::Backoff { .. }), "{:?}", child.status());
    assert_eq!(child.status().counts.failed_starts, 3);
}

#[tokio::test]
async fn half_open_circuit_admits_one_probe() {
    let dir = tempfile::tempdir().expect("a folder");
    let starts = dir.path().join("starts");
    let child = child_with("slow.py", &[&starts.display().to_string()], |_, options| {
        options.recovery.open = Duration::from_millis(20);
        options.recovery.failures = 1;
    });
    {
        let mut state = child.0.state.lock();
        let rules = child.0.shared.options.recovery;
        state.recovery.start_failed(&rules, Instant::now(), 0.0, "it was broken".to_owned());
    }
    let refused = text(&child, "any").await.expect_err("it is left alone");
    assert!(matches!(refused, ChildError::CircuitOpen { .. }), "{refused}");
    until(|| child.status().state == ChildState::NotStarted).await;
    let (probe, other) = tokio::join!(text(&child, "any"), text(&child, "any"));
    assert_eq!(probe.expect("it is well again"), "at last");
    assert!(matches!(other, Err(ChildError::CircuitOpen { .. })), "{other:?}");
    assert_eq!(text(&child, "any").await.expect("it is well again"), "at last");
}

#[tokio::test]
async fn missing_program_is_named() {
    let child = child_with("echo.py", &[], |spec, _| {
        if let Launch::Stdio { command, .. } = &mut spec.launch {
            *command = "no-such-program-anywhere".to_owned();
        }
    });
    let error = text(&child, "any").await.expect_err("it does not start").to_string();
    assert!(error.contains("cannot start `no-such-program-anywhere`"), "{error}");
    assert!(error.contains("check `command` and `cwd` in fixture/.mcp.json"), "{error}");
}

#[tokio::test]
async fn exit_status_outranks_stdin_error() {
    let child = child_with("echo.py", &[], |spec, options| {
        options.recovery.failures = u32::MAX;
        if let Launch::Stdio { command, args, .. } = &mut spec.launch {
            (*command, *args) = ("sh".to_owned(), vec!["-c".to_owned(), "exit 3".to_owned()]);
        }
    });
    // Whether the exit or the closed stdin is noticed first varies.
    for _ in 0..20 {
        let error = text(&child, "any").await.expect_err("it does not start").to_string();
        assert!(error.contains("it ended (exit status: 3)"), "{error}");
    }
}

#[tokio::test]
async fn unresponsive_child_times_out_and_is_killed() {
    let child = child_with("mute.py", &[], |spec, _| spec.limits.spawn = Duration::from_millis(400));
    let error = text(&child, "any").await.expect_err("it does not start");
    assert!(matches!(error, ChildError::SpawnTimeout { .. }), "{error}");
    assert!(error.to_string().contains("did not answer `initialize` within"), "{error}");
    assert!(error.to_string().contains("or raise `spawnTimeoutMs` in fixture/.mcp.json"), "{error}");
}

/// A program that computes before it answers is waited for, and no second instance is started.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn busy_child_starts_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let starts = dir.path().join("starts");
    let child = child_with("slow.py", &[&starts.display().to_string(), "compute"], |spec, _| {
        spec.limits.spawn = Duration::from_millis(100);
        spec.limits.fetch = DEADLINE;
        if let Launch::Stdio { framing, .. } = &mut spec.launch {
            *framing = Framing::Auto;
        }
    });
    assert_eq!(text(&child, "any").await.expect("it is well"), "at last");
    assert_eq!(std::fs::read_to_string(&starts).expect("it was started"), "x");
}

/// A restart would be as busy as the first start. The error reports the elapsed time.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn busy_child_beyond_limits_starts_once() {
    for (framing, cached_framing) in [(Framing::Auto, None), (Framing::Auto, Some(Framing::ContentLength))] {
        let dir = tempfile::tempdir().expect("a folder");
        let starts = dir.path().join("starts");
        let child = child_with("slow.py", &[&starts.display().to_string(), "compute", "on"], |spec, _| {
            // As set by `spawnTimeoutMs`: without extra time.
            (spec.limits.spawn, spec.limits.fetch) = (Duration::from_secs(1), Duration::from_secs(1));
            set_framing(spec, framing);
        });
        if let Some(cached_framing) = cached_framing {
            child.0.starter.cache_framing(cached_framing);
        }
        let error = text(&child, "any").await.expect_err("it is busy");
        let ChildError::SpawnTimeout { after, .. } = &error else { panic!("{error}") };
        assert!(*after > Duration::from_millis(1400), "{error}");
        assert_eq!(std::fs::read_to_string(&starts).expect("it was started"), "x");
    }
}

#[tokio::test]
async fn idle_child_stops_and_restarts() {
    let child = child_with("mortal.py", &[], |spec, _| spec.limits.idle = Some(Duration::from_millis(50)));
    let mut events = child.events();
    let first = text(&child, "pid").await.expect("an answer");
    let Ok(ChildEvent::Stopped { reason }) = with_timeout(events.recv()).await else { panic!("it stopped") };
    assert_eq!(reason, "it was idle");
    let second = text(&child, "pid").await.expect("an answer");
    assert_ne!(first, second);
    assert_eq!(child.status().counts.crashes, 0);
}

#[tokio::test]
async fn content_length_framing_is_detected_and_cached() {
    // Long enough for a program to start on a loaded machine.
    const SPAWN: Duration = Duration::from_secs(10);
    let cache = tempfile::tempdir().expect("a folder");
    let with_cache = |spec: &mut ChildSpec, options: &mut ChildOptions| {
        spec.limits.spawn = SPAWN;
        set_framing(spec, Framing::Auto);
        options.cache = Dir::open_root(cache.path()).ok();
    };
    let child = child_with("length_only.py", &[], with_cache);
    assert_eq!(text(&child, "any").await.expect("an answer"), "é");
    assert_eq!(std::fs::read(cache.path().join("fixture.framing")).expect("it is kept"), b"content-length\n");
    // A new handle with the same cache need not detect the framing again.
    let again = child_with("length_only.py", &[], with_cache);
    let started = Instant::now();
    assert_eq!(text(&again, "any").await.expect("an answer"), "é");
    assert!(started.elapsed() < SPAWN);
    // If the child switches to lines, the framing is detected again.
    let changed = child_with("echo.py", &[], with_cache);
    call(&changed, "echo", json!({}), &Caller::default()).await.expect("an answer");
    assert!(!cache.path().join("fixture.framing").exists());
}

#[tokio::test]
async fn downloading_child_gets_more_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let starts = dir.path().join("starts");
    // As `npx` does before it starts a server that it has to download.
    let script = "echo downloading >&2; echo x >> \"$1\"; if [ $(wc -l < \"$1\") -lt 3 ]; then sleep 1000; fi; exec python3 -B \"$2\"";
    let child = child_with("echo.py", &[], |spec, _| {
        (spec.limits.spawn, spec.limits.fetch) = (Duration::from_secs(2), Duration::from_mins(1));
        set_framing(spec, Framing::Auto);
        if let Launch::Stdio { command, args, .. } = &mut spec.launch {
            let server = args.pop().expect("the server");
            let words = ["-c", script, "sh", &starts.display().to_string(), &server].map(str::to_owned);
            (*command, *args) = ("sh".to_owned(), words.to_vec());
        }
    });
    call(&child, "echo", json!({}), &Caller::default()).await.expect("an answer");
    assert_eq!(std::fs::read_to_string(&starts).expect("it wrote").lines().count(), 3);
}

#[tokio::test]
async fn silent_downloader_starts_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (runner, starts) = (dir.path().join("npx"), dir.path().join("starts"));
    let script = "#!/bin/sh\necho x >> \"$1\"; sleep 1; exec python3 -B \"$2\"\n";
    test_support::files::put(&runner, script);
    test_support::files::chmod(&runner, 0o755);
    let child = child_with("echo.py", &[], |spec, _| {
        spec.limits.spawn = Duration::from_millis(100);
        set_framing(spec, Framing::Auto);
        if let Launch::Stdio { command, args, .. } = &mut spec.launch {
            let server = args.pop().expect("the server");
            *command = runner.display().to_string();
            *args = vec![starts.display().to_string(), server];
        }
    });
    call(&child, "echo", json!({}), &Caller::default()).await.expect("an answer");
    assert_eq!(std::fs::read_to_string(&starts).expect("it wrote").lines().count(), 1);
}

#[tokio::test]
async fn configured_framing_is_used() {
    let child = child_with("length_only.py", &[], |spec, _| set_framing(spec, Framing::ContentLength));
    assert_eq!(text(&child, "any").await.expect("an answer"), "é");
}

#[tokio::test]
async fn chunked_blocks_and_lines_are_parsed() {
    let child = child("split.py", &[]);
    for _ in 0..6 {
        assert_eq!(text(&child, "any").await.expect("an answer"), "ä€😀");
    }
}

#[tokio::test]
async fn stdout_and_stderr_noise_is_logged() {
    let logs = tempfile::tempdir().expect("a folder");
    let child = child_with("chatty.py", &[], |_, options| options.log = Dir::open_root(logs.path()).ok());
    assert_eq!(text(&child, "any").await.expect("an answer"), "after the chat");
    let read = || std::fs::read_to_string(logs.path().join("fixture.log")).unwrap_or_default();
    until(|| read().matches("red to stderr").count() == 2).await;
    for line in ["starting up", r#"{"level":"info","msg":"ready"}"#, "not an answer either", "{broken"] {
        assert_eq!(read().matches(line).count(), 2, "{line} in {}", read());
    }
    assert_eq!(child.status().counts.stray_answers, 0);
    assert_eq!(child.status().counts.stdout_lines, 14);
    assert!(child.last_lines().contains(&"red to stderr".to_owned()));
}

#[tokio::test]
async fn unreadable_output_ends_child_with_reason() {
    let cases = [
        ("line", "a line of more than 1048576 bytes"),
        ("json", "a line of more than 1048576 bytes"),
        ("large", "announced a message of 99999999999 bytes, more than the 1048576 allowed"),
        ("negative", "`Content-Length: -5`, which is not a length"),
        ("garbage", "`Content-Length: five`, which is not a length"),
        ("short", "a block of 30 bytes that is not JSON"),
    ];
    let child = child_with("huge.py", &[], |_, options| options.message_cap = 1024 * 1024);
    for (tool, expected) in cases {
        let error = text(&child, tool).await.expect_err(tool).to_string();
        assert!(error.contains(expected), "{tool}: {error}");
    }
    assert_eq!(child.status().counts.crashes, 6);
}

#[tokio::test]
async fn stop_kills_unresponsive_descendants() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("pids");
    let child = child("stubborn.py", &[&file.display().to_string()]);
    assert_eq!(text(&child, "any").await.expect("an answer"), "here");
    let pids = pids(&file);
    assert_eq!(pids.len(), 2);
    with_timeout(child.stop()).await;
    for pid in pids {
        assert_eq!(process_started(pid), None);
    }
}

#[tokio::test]
async fn start_can_be_stopped() {
    let child = child("mute.py", &[]);
    let caller = Caller::default();
    let (opened, ()) = tokio::join!(child.open(&caller), async {
        until(|| child.status().state == ChildState::Starting).await;
        child.stop().await;
    });
    let error = opened.expect_err("it was stopped").to_string();
    assert!(error.contains("it was stopped while it started"), "{error}");
    assert_eq!(child.status().state, ChildState::NotStarted);
    assert_eq!(child.status().counts.failed_starts, 0);
}

#[tokio::test]
async fn dropping_last_handle_stops_child() {
    let child = child("mortal.py", &[]);
    let pid = text(&child, "pid").await.expect("an answer").parse().expect("a pid");
    drop(child);
    until(|| process_started(pid).is_none()).await;
}

fn pids(file: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(file).expect("it wrote");
    text.lines().map(|line| line.parse().expect("a pid")).collect()
}
