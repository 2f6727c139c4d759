//! A disk that is really full: a small one, mounted for this test.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use door_workspace::{WorkspaceError, to_native};
use switchboard_hub::HubError;
use tempfile::TempDir;
use test_support::process::command;
use test_support::{Running, Sandbox, files, message_file, poll, tools};

use crate::BINARY;
use crate::child::{Library, Role, message_to_codex};
use crate::crash::check;

/// How long a delivery is leased to a process that did not report an outcome.
const LEASE: Duration = Duration::from_mins(1);

const MOUNT: [&str; 6] = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs"];

#[test]
fn disk_full_and_freed_needs_no_restart() {
    let folder = TempDir::with_prefix("switchboard-small-").unwrap();
    let probe = tools::run(command("unshare").args(["-rm"]).args(MOUNT).arg(folder.path()));
    if let Err(reason) = probe {
        return tools::skip("disk_full_and_freed_needs_no_restart", &reason);
    }
    let mut unshare = command("unshare");
    unshare.arg("-rm").arg(std::env::current_exe().unwrap());
    let mut inside = Running::start(&mut Role::FillDisk.command_under(unshare, folder.path(), "", 0));
    let (status, lines) = inside.wait_for_rest(Duration::from_mins(2));
    assert!(status.success(), "{}\n{}", lines.join("\n"), inside.errors());
    println!("{}", lines.join("\n"));
}

/// The part of the test that runs in the namespace with the small disk.
pub(crate) async fn run_inside(folder: &Path) {
    tools::run(command(MOUNT[0]).args(&MOUNT[1..]).arg(folder)).unwrap();
    let sandbox = Sandbox::in_folder(BINARY, folder);
    sandbox.ok(["init", "codex", "claude"]);
    files::put(sandbox.path().join("switchboard.config.json"), r#"{"workspace": {"rescanMs": 100}}"#);
    let spare = sandbox.path().join("spare.json");
    let dropped = "msg_1763000000000_dropped";
    files::put(&spare, message_file(dropped, "claude", "codex", "dropped", None));
    let mut serve = sandbox.serve();
    sandbox.deliver_two_files();
    let library = Library::open(sandbox.path()).await;
    let mut accepted = Vec::new();
    for number in 0..3 {
        let answer =
            library.workspace.send(message_to_codex("claude", format!("before {number}"))).await.unwrap();
        accepted.push(to_native(answer.id));
    }
    library.workspace.hub().deliveries().wait_until_settled(accepted_id(&accepted)).await.unwrap();

    let ballast = sandbox.path().join("ballast");
    fill(&ballast);
    // Frees a little space: the last accepted messages find no space for their file.
    let length = std::fs::metadata(&ballast).unwrap().len();
    OpenOptions::new().write(true).open(&ballast).unwrap().set_len(length - (256 << 10)).unwrap();
    let mut refusal = None;
    for number in 0..1000 {
        let body = format!("during {number} {}", "x".repeat(3_000));
        match library.workspace.send(message_to_codex("claude", body)).await {
            Ok(answer) => accepted.push(to_native(answer.id)),
            Err(error) => {
                refusal = Some(error);
                break;
            }
        }
    }
    let refusal = refusal.expect("a full disk refuses at last");
    assert!(matches!(refusal, WorkspaceError::Hub(HubError::NoSpace { .. })), "{refusal:?}");
    let mailbox = files::message_files(&sandbox.file("inbox/codex"));
    println!("{} were accepted, {} files are in the mailbox", accepted.len(), mailbox.len());
    fill(&ballast);
    let ran = sandbox.run(["send", "codex", "hello"]);
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stderr.contains("error: ") && ran.stderr.contains("hint: "), "{ran:?}");
    let printed = serve.errors().len();
    files::rename(&spare, sandbox.file(&format!("inbox/codex/{dropped}.json")));
    poll::until("serve to notice that the disk is full", || (serve.errors().len() > printed).then_some(()));
    no_receipt_without_a_message(&sandbox);
    assert!(sandbox.run(["tail"]).code.is_some_and(|code| code == 0 || code == 3));

    std::fs::remove_file(&ballast).unwrap();
    let deadline = Instant::now() + poll::TIMEOUT;
    let answer = loop {
        match library.workspace.send(message_to_codex("claude", "after".into())).await {
            Ok(answer) => break answer,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    accepted.push(to_native(answer.id));
    library.workspace.hub().deliveries().wait_until_settled(answer.id).await.unwrap();
    accepted.push(sandbox.send("claude", "codex", "from the command line"));
    poll::until("the dropped file to be ingested", || {
        (sandbox.run(["receipt", dropped]).code == Some(0)).then_some(())
    });
    accepted.push(dropped.to_owned());
    let missing = || {
        let there = files::message_files(&sandbox.file("inbox/codex"));
        accepted.iter().filter(|id| !there.contains(&format!("{id}.json"))).count()
    };
    // A delivery whose outcome could not be stored is retried when its lease of a minute ends. This process runs the
    // door that delivers, so the wait must not block it.
    let deadline = Instant::now() + LEASE + poll::TIMEOUT;
    while missing() > 0 {
        assert!(Instant::now() < deadline, "{} are missing", missing());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    library.close().await;
    assert!(serve.is_running());
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    check(&sandbox, &accepted);
}

fn accepted_id(accepted: &[String]) -> switchboard_core::MessageId {
    door_workspace::from_native(accepted.last().unwrap()).unwrap()
}

/// Fills the disk to the last byte.
fn fill(ballast: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(ballast).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        let piece = vec![0x42; size];
        while file.write(&piece).is_ok_and(|written| written > 0) {}
    }
}

fn no_receipt_without_a_message(sandbox: &Sandbox) {
    let there = files::message_files(&sandbox.file("inbox/codex"));
    files::walk(&sandbox.file("outbox"), &mut |path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(id) = name.strip_suffix(".receipt.json") {
            assert!(there.contains(&format!("{id}.json")), "{id} has a receipt and no file");
        }
    });
}
