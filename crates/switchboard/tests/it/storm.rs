//! Many processes at once: no message is lost, duplicated or overwritten, and order holds.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use switchboard_hub::Stored;
use test_support::{Running, Sandbox, files};

use crate::BINARY;
use crate::child::{Library, Role};

const SENDS: usize = 500;
/// Time for a machine that is busy with other work.
const LIMIT: Duration = Duration::from_mins(3);

#[test]
fn storm_of_sixteen_processes_on_one_mailbox() {
    let roles: Vec<(Role, String)> = (0..16)
        .map(|number| {
            let role = match number {
                0..8 => Role::Send,
                8..12 => Role::DropRenamed,
                _ => Role::DropInPlace,
            };
            (role, format!("sender{number:02}"))
        })
        .collect();
    let sandbox = Sandbox::with_agents(BINARY, &["codex"]);
    let mut serve = sandbox.serve();
    let mut children: Vec<Running> = roles
        .iter()
        .map(|(role, name)| Running::start(&mut role.command(sandbox.path(), name, SENDS)))
        .collect();
    for child in &mut children {
        let (status, lines) = child.wait_for_rest(LIMIT);
        assert!(status.success(), "{}", child.errors());
        assert_eq!(lines.iter().filter(|line| line.ends_with("> done")).count(), 1);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let expected = roles.len() * SENDS;
    let journal = runtime.block_on(async {
        let library = Library::open(sandbox.path()).await;
        let mut counted = 0;
        let all = tokio::time::timeout(LIMIT, async {
            // Counts at intervals without reading: the test must not slow the intake.
            while counted < expected {
                tokio::time::sleep(Duration::from_millis(200)).await;
                counted =
                    usize::try_from(library.workspace.hub().database().health().await.unwrap().messages)
                        .unwrap();
            }
        });
        let all = all.await;
        assert!(all.is_ok(), "{counted} of {expected} messages in the journal");
        library.close().await;
        journal(&sandbox).await
    });
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());

    let mut by_sender: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut ids = HashSet::new();
    for stored in &journal {
        let message = &stored.message;
        let (name, number) = message.body.split_once(' ').unwrap();
        assert_eq!(message.from.name.as_str(), name);
        by_sender.entry(name.to_owned()).or_default().push(number.parse().unwrap());
        assert!(ids.insert(door_workspace::native_id(message)), "{} twice", message.id);
    }
    // In journal order, every sender's numbers are complete, each once, and in order.
    let in_order: Vec<usize> = (0..SENDS).collect();
    for (_, name) in &roles {
        assert_eq!(by_sender.remove(name).as_ref(), Some(&in_order), "{name}");
    }
    assert!(by_sender.is_empty(), "{by_sender:?}");

    let mailbox = sandbox.file("inbox/codex");
    let names = files::message_files(&mailbox);
    assert_eq!(std::fs::read_dir(&mailbox).unwrap().count(), names.len(), "nothing else is in the mailbox");
    let mut bodies = HashSet::new();
    for name in &names {
        let file = files::read_json_object(&mailbox.join(name)).unwrap();
        assert!(ids.remove(file["id"].as_str().unwrap()), "{name} is in the journal");
        assert!(bodies.insert(file["payload"].as_str().unwrap().to_owned()), "{name} is the only one");
    }
    assert!(ids.is_empty(), "{} messages have no file", ids.len());
    assert_eq!(bodies.len(), expected);
    assert_eq!(sandbox.run(["doctor"]).code, Some(0));
}

async fn journal(sandbox: &Sandbox) -> Vec<Stored> {
    let library = Library::open(sandbox.path()).await;
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let page = library.workspace.hub().journal().entries(after, 1000).await.unwrap();
        after = page.items.last().map_or(after, |stored| stored.seq);
        all.extend(page.items);
        if !page.more {
            break;
        }
    }
    library.close().await;
    all
}
