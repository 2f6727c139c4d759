//! A disk that cannot be written, mounted for one test: stored mail is readable, and writing resumes without help once
//! the disk is writable.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use test_support::mcp::Client;
use test_support::process::command;
use test_support::{RunOutput, Running, Sandbox, files, poll, tools};

use crate::BINARY;
use crate::child::Role;

/// Runs a role of this test binary in its own namespace, in which it may mount.
fn in_namespace(test: &str, role: Role) {
    let folder = TempDir::with_prefix("switchboard-mount-").unwrap();
    let mut probe = command("unshare");
    probe.args(["-rm", "mount", "-t", "tmpfs", "tmpfs"]).arg(folder.path());
    if let Err(reason) = tools::run(&mut probe) {
        return tools::skip(test, &reason);
    }
    run_under("-rm", role, folder.path());
}

/// Runs a role of this test binary under `unshare`.
fn run_under(namespaces: &str, role: Role, folder: &Path) {
    let mut unshare = command("unshare");
    unshare.arg(namespaces).arg(std::env::current_exe().unwrap());
    let mut inside = Running::start(&mut role.command_under(unshare, folder, "", 0));
    let (status, lines) = inside.wait_for_rest(Duration::from_mins(2));
    assert!(status.success(), "{}\n{}", lines.join("\n"), inside.errors());
}

fn mount(options: &str, folder: &Path) {
    tools::run(command("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(folder)).unwrap();
}

fn remount(options: &str, folder: &Path) {
    tools::run(command("mount").args(["-o", options]).arg(folder)).unwrap();
}

/// A file system with files open for writing cannot be remounted; `crash/every_call.rs` makes the writes of a running
/// `serve` fail.
#[test]
fn read_only_disk_serves_reads_and_recovers() {
    in_namespace("read_only_disk_serves_reads_and_recovers", Role::ReadOnlyDisk);
}

/// Returns every verb that reads, with a message in the journal.
fn readers(id: &str) -> Vec<Vec<&str>> {
    vec![
        vec!["inbox", "codex"],
        vec!["who"],
        vec!["agents"],
        vec!["thread", id],
        vec!["tail"],
        vec!["search", "hello"],
        vec!["receipt", id],
        vec!["route", "codex"],
        vec!["audit", "verify"],
        vec!["team", "list"],
        vec!["channel", "list"],
        vec!["claim"],
        vec!["reserve"],
    ]
}

pub(crate) fn read_only_disk(folder: &Path) {
    mount("size=16m", folder);
    let sandbox = Sandbox::in_folder(BINARY, folder);
    sandbox.ok(["init", "codex", "claude"]);
    let id = sandbox.send("claude", "codex", "hello");
    let before: Vec<_> = readers(&id).iter().map(|verb| sandbox.run(verb).code).collect();
    sandbox.send("claude", "codex", "hello again");
    remount("remount,ro", folder);
    let degraded = format!("the file system at {} is mounted read-only", folder.display());
    for (verb, before) in readers(&id).iter().zip(before) {
        let ran = sandbox.run(verb);
        assert_eq!((ran.code, before), (Some(0), Some(0)), "{verb:?}: {ran:?}");
        assert!(ran.stderr.contains(&degraded), "{verb:?}: {ran:?}");
    }
    assert_eq!(sandbox.json(["inbox", "codex"]).len(), 2);
    assert_eq!(sandbox.json(["receipt", &id])[0]["degraded"]["code"], "read_only_mount");
    for verb in [&["send", "codex", "lost?"][..], &["ack", &id], &["agents", "register", "late"]] {
        let ran = sandbox.run_as("codex", verb);
        assert_eq!(ran.code, Some(3), "{verb:?}: {ran:?}");
    }
    let doctor = sandbox.run(["doctor"]);
    assert!(
        doctor.code == Some(1) && doctor.stdout.contains(&format!("FAIL  disk: {degraded}")),
        "{doctor:?}"
    );

    let start = |agent| {
        let mut session = sandbox.session(["mcp", "--alone", "--from", agent]);
        Client::stdio(Running::start_with_stdin(&mut session))
    };
    let (mut reader, mut writer) = (start("codex"), start("claude"));
    let read = reader.ok("check_inbox", json!({}));
    assert_eq!(read["messages"].as_array().map(Vec::len), Some(2), "{read}");
    assert_eq!(read["degraded"]["code"], "read_only_mount", "{read}");
    let refused = writer.refused(
        "send_message",
        json!({ "action": "delegate_task", "recipient": "codex", "payload": "lost?" }),
    );
    assert!(refused.contains("read-only"), "{refused}");

    remount("remount,rw", folder);
    writer.ok(
        "send_message",
        json!({ "action": "delegate_task", "recipient": "codex", "payload": "without a restart" }),
    );
    poll::until("the message to be there for its reader", || {
        let read = reader.ok("check_inbox", json!({}));
        (read["messages"].as_array()?.len() == 3 && read["degraded"].is_null()).then_some(())
    });
    assert_eq!(files::message_files(&sandbox.file("inbox/codex")).len(), 3);
    drop((reader, writer));
    assert_eq!(sandbox.run(["doctor", "--full"]).code, Some(0), "{:?}", sandbox.run(["doctor", "--full"]));
}

/// Mail is accepted without free inodes and delivered once there are some.
#[test]
fn disk_without_inodes_is_reported_then_delivers() {
    in_namespace("disk_without_inodes_is_reported_then_delivers", Role::FewInodes);
}

pub(crate) fn few_inodes(folder: &Path) {
    mount("size=16m,nr_inodes=300", folder);
    let sandbox = Sandbox::in_folder(BINARY, folder);
    sandbox.ok(["init", "codex", "claude"]);
    let id = sandbox.send("claude", "codex", "hello");
    for verb in readers(&id) {
        sandbox.ok(verb);
    }
    let ballast = sandbox.path().join("ballast");
    std::fs::create_dir(&ballast).unwrap();
    let made = (0..).take_while(|number| std::fs::File::create_new(ballast.join(number.to_string())).is_ok());
    assert!(made.count() > 10);
    for verb in readers(&id) {
        let ran = sandbox.run(&verb);
        assert!(ran.code == Some(0) && ran.stderr.contains("no inodes are left"), "{verb:?}: {ran:?}");
    }
    let accepted = sandbox.run_as("claude", ["send", "codex", "waits for an inode"]);
    assert_eq!(accepted.code, Some(3), "{accepted:?}");
    assert!(accepted.stderr.contains("accepted, but not delivered to codex yet"), "{accepted:?}");
    let doctor = sandbox.run(["doctor"]);
    assert!(doctor.code == Some(1) && doctor.stdout.contains("no inodes are left"), "{doctor:?}");
    assert!(!doctor.stdout.contains("ok    files"), "{doctor:?}");
    assert!(doctor.stdout.contains("1 delivery waits for the disk"), "{doctor:?}");
    std::fs::remove_dir_all(&ballast).unwrap();
    let mut serve = sandbox.serve();
    sandbox.send("claude", "codex", "there is room");
    poll::until("every message to be in its mailbox", || {
        (files::message_files(&sandbox.file("inbox/codex")).len() == 3).then_some(())
    });
    assert_eq!(serve.terminate().code(), Some(0));
    assert_eq!(sandbox.run(["doctor"]).code, Some(0), "{:?}", sandbox.run(["doctor"]));
}

const LOOP: [&str; 3] = ["mount", "-o", "loop"];

/// Ext4 reserves blocks that root cannot use either. Only root may mount it.
#[test]
fn full_ext4_is_detected_by_root() {
    let folder = TempDir::with_prefix("switchboard-ext4-").unwrap();
    let (image, disk) = (folder.path().join("image"), folder.path().join("disk"));
    std::fs::create_dir(&disk).unwrap();
    std::fs::File::create_new(&image).unwrap().set_len(24 << 20).unwrap();
    let made = tools::run(command("mkfs.ext4").args(["-q", "-m", "0", "-N", "400"]).arg(&image));
    let mounted =
        made.and_then(|_| tools::run(command("unshare").arg("-m").args(LOOP).arg(&image).arg(&disk)));
    if let Err(reason) = mounted {
        return tools::skip("full_ext4_is_detected_by_root", &reason);
    }
    run_under("-m", Role::FullExt4, folder.path());
}

pub(crate) fn full_ext4(folder: &Path) {
    let disk = folder.join("disk");
    tools::run(command(LOOP[0]).args(&LOOP[1..]).arg(folder.join("image")).arg(&disk)).unwrap();
    let sandbox = Sandbox::in_folder(BINARY, &disk);
    sandbox.ok(["init", "codex", "claude"]);
    sandbox.send("claude", "codex", "before");
    let ballast = sandbox.path().join("ballast");
    let mut zeros = std::io::repeat(0);
    let filled = std::io::copy(&mut zeros, &mut std::fs::File::create_new(&ballast).unwrap());
    assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let read = sandbox.run(["inbox", "codex"]);
    assert!(read.code == Some(0) && read.stderr.contains("no space is left"), "{read:?}");
    let doctor = sandbox.run(["doctor"]);
    assert!(doctor.code == Some(1) && doctor.stdout.contains("no space is left"), "{doctor:?}");
    assert!(!doctor.stdout.contains("ok    files"), "{doctor:?}");
    std::fs::remove_file(&ballast).unwrap();
    sandbox.send("claude", "codex", "there is room");
    let doctor = sandbox.run(["doctor"]);
    assert!(doctor.code == Some(0) && doctor.stdout.contains("ok    files"), "{doctor:?}");
    std::env::set_current_dir("/").unwrap();
    tools::run(command("umount").arg(&disk)).unwrap();
}

/// Mailboxes are on other disks than the store.
#[test]
fn mailbox_disk_is_examined() {
    in_namespace("mailbox_disk_is_examined", Role::MailboxDisks);
}

pub(crate) fn mailbox_disks(folder: &Path) {
    mount("size=16m", folder);
    let sandbox = Sandbox::in_folder(BINARY, folder);
    sandbox.ok(["init", "codex", "claude"]);
    let inbox = sandbox.file("inbox");
    mount("size=1m,mode=700", &inbox);
    sandbox.send("codex", "claude", "hello");
    sandbox.send("claude", "codex", "hello");
    remount("remount,ro", &inbox);
    for number in 0..4 {
        let accepted = sandbox.run_as("claude", ["send", "codex", &format!("waits {number}")]);
        assert_eq!(accepted.code, Some(3), "{accepted:?}");
    }
    let waits = |doctor_report: &str| {
        let doctor = sandbox.run(["doctor"]);
        assert!(doctor.code == Some(1) && doctor.stdout.contains(doctor_report), "{doctor:?}");
        assert!(!doctor.stdout.contains("ok    files"), "{doctor:?}");
        doctor.stdout
    };
    assert!(waits("4 deliveries wait for the disk").contains("mounted read-only"));
    remount("remount,rw", &inbox);
    let delivered = |agent: &str, count: usize| {
        let mut serve = sandbox.serve();
        poll::until("every message to be in its mailbox", || {
            (files::message_files(&inbox.join(agent)).len() == count).then_some(())
        });
        assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
        assert_eq!(sandbox.run(["doctor"]).code, Some(0), "{:?}", sandbox.run(["doctor"]));
    };
    delivered("codex", 5);

    // No probe checks the disk of a single mailbox: the failed delivery reports it.
    let mailbox = inbox.join("claude");
    mount("size=1m,mode=700,nr_inodes=1", &mailbox);
    let accepted = sandbox.run_as("codex", ["send", "claude", "waits for an inode"]);
    assert_eq!(accepted.code, Some(3), "{accepted:?}");
    waits("1 delivery waits for the disk");
    tools::run(command("umount").arg(&mailbox)).unwrap();
    delivered("claude", 2);
}

/// Returns the numbers of the files that a process has open.
fn descriptors(process: u32) -> Vec<u64> {
    let entries = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect()
}

fn set_file_limit(process: u32, limit: u64) {
    let limit = format!("--nofile={limit}:");
    tools::run(command("prlimit").args(["--pid", &process.to_string(), &limit])).unwrap();
}

/// No descriptor is free. Connected clients can read; accepted mail is delivered once a file can be opened.
#[test]
fn serve_without_free_descriptors_resumes() {
    if !Path::new("/proc/self/fd").exists() {
        return tools::skip("serve_without_free_descriptors_resumes", "there is no /proc");
    }
    let sandbox = Sandbox::with_agents(BINARY, &["codex", "claude"]);
    let mut serve = sandbox.serve();
    let start =
        |agent| Client::stdio(Running::start_with_stdin(&mut sandbox.session(["mcp", "--from", agent])));
    let (mut reader, mut writer) = (start("codex"), start("claude"));
    let task = |text: &str| json!({ "action": "delegate_task", "recipient": "codex", "payload": text });
    writer.ok("send_message", task("before"));
    reader.ok("wait_for_message", json!({ "timeout": 60 }));
    let of_serve = serve.id();
    let doctor = sandbox.run(["doctor"]);
    assert!(doctor.code == Some(0) && !doctor.stdout.contains("open files"), "{doctor:?}");

    // The lowest descriptors were opened first and stay open; a lowered limit closes none.
    let limit = 10;
    let used = descriptors(of_serve);
    assert!((0..limit).all(|number| used.contains(&number)), "{used:?}");
    set_file_limit(of_serve, limit);
    let sent = writer.ok("send_message", task("during"));
    let read = reader.ok("check_inbox", json!({}));
    assert!(read["messages"].as_array().is_some_and(|messages| !messages.is_empty()), "{read}");
    let id = sent["id"].as_str().unwrap();
    let receipt = writer.ok("get_receipt", json!({ "id": id }));
    assert_ne!(receipt["deliveries"][0]["state"], "delivered", "{receipt}");
    assert!(!sandbox.file(&format!("inbox/codex/{id}.json")).exists());
    let doctor = sandbox.run(["doctor"]);
    assert!(
        doctor.code == Some(1) && doctor.stdout.contains(&format!("uses {limit} of {limit} open files")),
        "{doctor:?}"
    );

    set_file_limit(of_serve, 1024);
    writer.ok("send_message", task("after"));
    poll::until("every message to be in its mailbox", || {
        (files::message_files(&sandbox.file("inbox/codex")).len() == 3).then_some(())
    });
    drop((reader, writer));
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    assert_eq!(sandbox.run(["doctor", "--full"]).code, Some(0), "{:?}", sandbox.run(["doctor", "--full"]));
}

/// A command that may open too few files reports that, and claims no success.
#[test]
fn command_with_few_descriptors_names_limit() {
    let sandbox = Sandbox::with_agents(BINARY, &["codex", "claude"]);
    let mut reported = Vec::new();
    for limit in [6, 9, 12, 15, 18, 21, 24] {
        let mut shell = command("sh");
        shell.args(["-c", &format!("ulimit -n {limit}; exec \"$0\" \"$@\"")]).arg(BINARY);
        shell.args(["send", "codex", &format!("with {limit}"), "--from", "claude"]);
        shell.current_dir(sandbox.path()).env("HOME", sandbox.home());
        let ran = RunOutput::of(&mut shell);
        if ran.code == Some(0) || ran.stderr.contains("accepted, but not delivered") {
            reported.push(ran.stdout.trim().to_owned());
        } else {
            assert!(ran.code == Some(1) || ran.code == Some(3), "{limit}: {ran:?}");
            assert_eq!(ran.stdout, "", "{limit}: {ran:?}");
        }
        if ran.code != Some(0) {
            assert!(ran.stderr.contains("raise the limit (`ulimit -n`)"), "{limit}: {ran:?}");
        }
    }
    reported.push(sandbox.send("claude", "codex", "enough"));
    // A delivery that failed at once is retried after a pause.
    let mut serve = sandbox.serve();
    poll::until("every reported message to be in the mailbox, and no other", || {
        let there = sandbox.json(["inbox", "codex"]);
        let there: Vec<&str> = there.iter().map(|line| line["native_id"].as_str().unwrap()).collect();
        (there == reported).then_some(())
    });
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    assert_eq!(sandbox.run(["doctor", "--full"]).code, Some(0), "{:?}", sandbox.run(["doctor", "--full"]));
}
