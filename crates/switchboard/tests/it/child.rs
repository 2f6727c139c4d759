//! Child processes that run this test binary in another role: users of the library, writers of files.
//!
//! A test starts them by running only the test [`child`], with the role in a variable.

use std::env;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use door_workspace::{OutgoingMessage, Workspace, to_native};
use switchboard_core::{AgentId, Door, Kind, Name};
use switchboard_hub::{MailboxQuery, Part};
use switchboard_sys::clock::Clock;
use test_support::{files, message_file, process};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const ROLE: &str = "SWITCHBOARD_TEST_CHILD";
const FOLDER: &str = "SWITCHBOARD_TEST_FOLDER";
const NAME: &str = "SWITCHBOARD_TEST_NAME";
const COUNT: &str = "SWITCHBOARD_TEST_COUNT";

/// Prefix of a child's own output lines; the test runner's lines do not have it.
const MARK: &str = "> ";

/// Task of a child process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Sends through the library and prints each accepted id.
    Send,
    /// Acknowledges all unread mail.
    Acknowledge,
    /// Drops files, written under a temporary name and renamed.
    DropRenamed,
    /// Drops files, written in place and in parts.
    DropInPlace,
    /// Fills its disk and frees it.
    FillDisk,
    /// Makes its disk read-only and then writable.
    ReadOnlyDisk,
    /// Uses up the inodes of its disk.
    FewInodes,
    /// Fills an ext4 file system.
    FullExt4,
    /// Mounts a disk for each mailbox.
    MailboxDisks,
}

impl Role {
    const ALL: [Self; 9] = [
        Self::Send,
        Self::Acknowledge,
        Self::DropRenamed,
        Self::DropInPlace,
        Self::FillDisk,
        Self::ReadOnlyDisk,
        Self::FewInodes,
        Self::FullExt4,
        Self::MailboxDisks,
    ];

    /// Builds a command that runs this test binary in this role, in `folder` as `name`, `count` times.
    pub(crate) fn command(self, folder: &Path, name: &str, count: usize) -> Command {
        self.command_under(process::command(env::current_exe().unwrap()), folder, name, count)
    }

    /// Adds the arguments of this role to a command that runs this test binary.
    pub(crate) fn command_under(
        self,
        mut command: Command,
        folder: &Path,
        name: &str,
        count: usize,
    ) -> Command {
        command.args(["--exact", "child::child", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{self:?}")).env(FOLDER, folder).env(NAME, name);
        command.env(COUNT, count.to_string());
        command
    }
}

/// Returns the text of a line that a child printed, or `None` for a line of the test runner.
pub(crate) fn child_line(line: &str) -> Option<&str> {
    line.strip_prefix(MARK)
}

fn print_line(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{MARK}{text}").and_then(|()| out.flush()).unwrap();
}

/// A workspace that this process has open and whose deliveries it runs.
pub(crate) struct Library {
    pub(crate) workspace: Workspace,
    door: JoinHandle<()>,
    stop: CancellationToken,
}

impl Library {
    pub(crate) async fn open(folder: &Path) -> Self {
        let workspace = Workspace::open(folder, door_workspace::Config::default(), |_| ()).await.unwrap();
        let outbound = workspace.hub().deliveries().open_door(Door::Workspace).await.unwrap();
        let working = workspace.clone();
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let door =
            tokio::spawn(async move { door_workspace::run_deliveries(&working, outbound, stopped).await });
        Self { workspace, door, stop }
    }

    pub(crate) async fn close(self) {
        self.stop.cancel();
        self.door.await.unwrap();
        self.workspace.close().await;
    }
}

/// Creates a message to `codex`.
pub(crate) fn message_to_codex(from: &str, body: String) -> OutgoingMessage {
    OutgoingMessage::new(
        AgentId::local(Name::parse(from).unwrap()),
        "codex".parse().unwrap(),
        Kind::delegate_task(),
        body,
    )
}

/// Does nothing, unless another test started this process with a role.
#[test]
fn child() {
    let Ok(role) = env::var(ROLE) else { return };
    let role = Role::ALL.into_iter().find(|known| format!("{known:?}") == role).unwrap();
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let (name, count) = (env::var(NAME).unwrap(), env::var(COUNT).unwrap().parse().unwrap());
    // The test runner has printed the start of a line without a line break.
    println!();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match role {
        Role::Send => runtime.block_on(send(&folder, &name, count)),
        Role::Acknowledge => runtime.block_on(acknowledge(&folder)),
        Role::DropRenamed => drop_files(&folder, &name, count, |path, file| files::put_by_rename(path, file)),
        Role::DropInPlace => drop_files(&folder, &name, count, |path, file| files::put_in_pieces(path, file)),
        Role::FillDisk => runtime.block_on(crate::disk_full::run_inside(&folder)),
        Role::ReadOnlyDisk => crate::degraded::read_only_disk(&folder),
        Role::FewInodes => crate::degraded::few_inodes(&folder),
        Role::FullExt4 => crate::degraded::full_ext4(&folder),
        Role::MailboxDisks => crate::degraded::mailbox_disks(&folder),
    }
    print_line("done");
}

async fn send(folder: &Path, name: &str, count: usize) {
    let library = Library::open(folder).await;
    print_line("open");
    for number in 0..count {
        let accepted =
            library.workspace.send(message_to_codex(name, format!("{name} {number}"))).await.unwrap();
        print_line(&to_native(accepted.id));
        if number + 1 == count {
            library.workspace.hub().deliveries().wait_until_settled(accepted.id).await.unwrap();
        }
    }
    library.close().await;
}

async fn acknowledge(folder: &Path) {
    let library = Library::open(folder).await;
    let agent: AgentId = "codex".parse().unwrap();
    let hub = library.workspace.hub();
    let mut changes = hub.changes();
    loop {
        let query = MailboxQuery { agent: agent.clone(), after: 0, limit: 20, part: Part::Waiting };
        let mail = hub.mailboxes().page(query).await.unwrap().items;
        for mail in &mail {
            library.workspace.acknowledge(&agent, mail.stored.message.id, None).await.unwrap();
        }
        if mail.is_empty() {
            changes.next().await;
        }
    }
}

fn drop_files(folder: &Path, name: &str, count: usize, write: impl Fn(&Path, String)) {
    let clock = Clock::system();
    for number in 0..count {
        let now = clock.now();
        let id = format!("msg_{}_{name}{number:05}", now.as_millisecond());
        let file = message_file(&id, name, "codex", &format!("{name} {number}"), Some(&format!("{now:.3}")));
        write(&folder.join(format!(".switchboard/inbox/codex/{id}.json")), file);
    }
}
