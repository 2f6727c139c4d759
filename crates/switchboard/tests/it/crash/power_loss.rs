//! Power loss. The disk retains synced data; of unsynced data it retains nothing, only the names, or any pages.
//!
//! The process is killed, then each file of the workspace is put into a state that the disk may have after a power
//! failure. Removed names stay removed, and created folders stay. No `serve` has recorded the boot in these workspaces,
//! so the next one compares all files with the journal, as it does after a boot.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use test_support::fault::Fault;
use test_support::{RunOutput, Running, Sandbox, files, poll};

use super::check;
use super::every_call::{ARGS, SPREAD, SURVIVORS, shim, template};
use crate::BINARY;
use crate::child::{Role, child_line};
use crate::workspace;

/// Rounds with many sends; `SWITCHBOARD_CRASH_ROUNDS` sets another number.
const ROUNDS: usize = 12;

/// A file system writes pages of this size, in any order.
const PAGE: usize = 4096;

/// Unsynced writes that survive a power loss.
#[derive(Debug, Clone, Copy)]
enum Unsynced {
    /// Nothing: a file is there only if its folder was synced.
    Lost,
    /// The name: a file that was never synced is empty.
    NameOnly,
    /// Any of the pages: the others have the synced content, or zeros.
    AnyPages,
}

const UNSYNCED: [Unsynced; 3] = [Unsynced::Lost, Unsynced::NameOnly, Unsynced::AnyPages];

/// A workspace whose disk is about to lose power.
struct Disk<'s> {
    sandbox: &'s Sandbox,
    /// The original content of each file, by inode number.
    before: HashMap<u64, Vec<u8>>,
    /// Where the shim stores the content as of the last sync.
    synced: TempDir,
}

impl<'s> Disk<'s> {
    /// Starts with everything that exists now on disk.
    fn of(sandbox: &'s Sandbox) -> Self {
        let mut disk = Self::empty(sandbox);
        for (path, inode) in disk.files() {
            disk.before.insert(inode, std::fs::read(path).unwrap());
        }
        disk
    }

    /// Starts with nothing that exists now on disk.
    fn empty(sandbox: &'s Sandbox) -> Self {
        let before = HashMap::new();
        Self { sandbox, before, synced: TempDir::with_prefix("switchboard-synced-").unwrap() }
    }

    /// Returns the files of the workspace and of its owner, each with its inode number.
    fn files(&self) -> Vec<(PathBuf, u64)> {
        let mut found = Vec::new();
        for folder in [self.sandbox.path(), self.sandbox.home()] {
            files::walk(folder, &mut |path| {
                found.extend(regular(path).map(|inode| (path.to_owned(), inode)));
            });
        }
        found
    }

    /// True if the disk has the name of a file.
    fn retains_name(&self, path: &Path, inode: u64) -> bool {
        let folder = std::fs::metadata(path.parent().unwrap()).unwrap().ino();
        let line = format!("{inode} {}", path.file_name().unwrap().to_str().unwrap());
        let names = std::fs::read_to_string(self.synced.path().join(folder.to_string())).unwrap_or_default();
        self.before.contains_key(&inode) || names.lines().any(|name| name == line)
    }

    /// Puts each file into a state that the disk may have. It writes in place: a database is identified by its inode.
    fn lose_power(&self, unsynced: Unsynced, random: &mut fastrand::Rng) {
        for (path, inode) in self.files() {
            let synced = std::fs::read(self.synced.path().join(inode.to_string())).ok();
            let kept = synced.or_else(|| self.before.get(&inode).cloned());
            if matches!(unsynced, Unsynced::Lost) && !self.retains_name(&path, inode) {
                std::fs::remove_file(path).unwrap();
                continue;
            }
            let kept = kept.unwrap_or_default();
            let after = match unsynced {
                Unsynced::Lost | Unsynced::NameOnly => kept,
                Unsynced::AnyPages => mix(&kept, &std::fs::read(&path).unwrap(), random),
            };
            let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
            file.write_all(&after).unwrap();
        }
    }
}

/// Returns the inode number of a regular file.
fn regular(path: &Path) -> Option<u64> {
    let found = std::fs::symlink_metadata(path).ok()?;
    found.is_file().then(|| found.ino())
}

/// Mixes any of the written pages into the synced content; the result has either length.
fn mix(kept: &[u8], written: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut mixed = if random.bool() { written.to_vec() } else { kept.to_vec() };
    for (number, page) in mixed.chunks_mut(PAGE).enumerate() {
        let source = if random.bool() { written } else { kept };
        let source = source.get(number * PAGE..).unwrap_or_default();
        let common = source.len().min(page.len());
        page[..common].copy_from_slice(&source[..common]);
        page[common..].fill(0);
    }
    mixed
}

/// Restarts after the power failure and checks that each reported message is there once and no file is partial.
fn restart(sandbox: &Sandbox, reported: &[String]) {
    let mut serve = sandbox.serve();
    let is_whole = |id: &str| {
        ["inbox", "archive"].iter().any(|section| {
            let file = sandbox.file(&format!("{section}/codex/{id}.json"));
            std::fs::read(file).is_ok_and(|bytes| serde_json::from_slice::<serde_json::Value>(&bytes).is_ok())
        })
    };
    let tail = sandbox.json(["tail", "-n", "1000000"]);
    for id in tail.iter().map(|message| message["native_id"].as_str().unwrap()) {
        poll::until("the file of a message", || is_whole(id).then_some(()));
    }
    assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
    check(sandbox, reported);
}

fn random() -> fastrand::Rng {
    let seed = std::env::var("SWITCHBOARD_CRASH_SEED");
    let seed = seed.map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("SWITCHBOARD_CRASH_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// At every third file call of one `send`, and after a reported one. With `SWITCHBOARD_CRASH_ROUNDS`, at every call.
#[test]
fn crash_power_loss_during_send() {
    let Some(shim) = shim("crash_power_loss_during_send") else { return };
    let mut random = random();
    let (template, calls) = template(&shim);
    let step = if std::env::var_os("SWITCHBOARD_CRASH_ROUNDS").is_some() { 1 } else { 3 };
    let (mut survivors, mut present, mut losses) = (0, 0, 0);
    for at in (1 + random.usize(0..step)..=calls + SPREAD).step_by(step) {
        let sandbox = template.copy();
        let disk = Disk::of(&sandbox);
        let mut command = sandbox.command(ARGS);
        shim.arm(&mut command, Fault::Kill { at });
        let ran = RunOutput::of(shim.record_syncs(&mut command, disk.synced.path()));
        let reported: Vec<String> = ran.stdout.lines().map(str::to_owned).collect();
        disk.lose_power(UNSYNCED[losses % UNSYNCED.len()], &mut random);
        restart(&sandbox, &reported);
        let found = sandbox.json(["inbox", "codex"]).len();
        assert!(found <= 1 && found >= reported.len(), "at {at}: {found} found, {reported:?} reported");
        present += found;
        losses += 1;
        survivors += usize::from(ran.code.is_some());
        if survivors == SURVIVORS {
            break;
        }
    }
    println!("{losses} power failures; the message was there after {present} of them");
    assert!(survivors > 0 && present >= survivors && present < losses, "{present} of {losses}");
}

/// At a random moment while one process sends as fast as it can, with its writer ahead of the disk.
#[test]
fn crash_power_loss_during_many_sends() {
    let Some(shim) = shim("crash_power_loss_during_many_sends") else { return };
    let mut random = random();
    let rounds = std::env::var("SWITCHBOARD_CRASH_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let mut all = 0;
    for round in 0..rounds {
        let sandbox = workspace();
        let disk = Disk::of(&sandbox);
        let mut command = Role::Send.command(sandbox.path(), "claude", 100_000);
        let mut sender = Running::start(shim.record_syncs(&mut command, disk.synced.path()));
        let wanted = random.usize(1..40);
        let mut lines = Vec::new();
        while lines.iter().filter_map(|line: &String| child_line(line)).count() <= wanted {
            lines.push(sender.line());
        }
        sender.lines_until(Instant::now() + Duration::from_micros(random.u64(0..6_000)), &mut lines);
        sender.kill();
        sender.lines_until(Instant::now() + poll::TIMEOUT, &mut lines);
        let ids =
            lines.iter().filter_map(|line| child_line(line)).filter(|printed| printed.starts_with("msg_"));
        let reported: Vec<String> = ids.map(str::to_owned).collect();
        all += reported.len();
        disk.lose_power(UNSYNCED[round % UNSYNCED.len()], &mut random);
        restart(&sandbox, &reported);
    }
    println!("{all} messages were reported before {rounds} power failures");
    assert!(all >= rounds);
}

/// Right after the first message of a new workspace; only what the two commands have synced is on disk.
#[test]
fn crash_power_loss_after_first_send() {
    let Some(shim) = shim("crash_power_loss_after_first_send") else { return };
    let mut random = random();
    for unsynced in UNSYNCED.repeat(3) {
        let sandbox = Sandbox::bare(BINARY);
        let disk = Disk::empty(&sandbox);
        let mut reported = String::new();
        for args in [&["init", "codex", "claude"][..], &ARGS] {
            let mut command = sandbox.command(args);
            reported = RunOutput::of(shim.record_syncs(&mut command, disk.synced.path())).ok();
        }
        disk.lose_power(unsynced, &mut random);
        restart(&sandbox, &[reported]);
        let foreign = std::fs::read_dir(sandbox.file("")).unwrap().find(|entry| {
            entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().contains("foreign"))
        });
        assert!(foreign.is_none(), "{unsynced:?}: {foreign:?}");
    }
}

/// A post is a file first; it is on disk when its id is printed.
#[test]
fn crash_power_loss_after_channel_post() {
    let Some(shim) = shim("crash_power_loss_after_channel_post") else { return };
    let mut random = random();
    for unsynced in UNSYNCED.repeat(2) {
        let sandbox = workspace();
        let disk = Disk::of(&sandbox);
        let mut post =
            sandbox.command(["channel", "post", "--agent", "codex", "--channel", "general", "--text", "hi"]);
        let id = RunOutput::of(shim.record_syncs(&mut post, disk.synced.path())).ok();
        disk.lose_power(unsynced, &mut random);
        let mut serve = sandbox.serve();
        poll::until("the post", || {
            let read = sandbox.run(["channel", "read", "--channel", "general", "--json"]);
            read.stdout.contains(&id).then_some(())
        });
        assert_eq!(serve.terminate().code(), Some(0), "{}", serve.errors());
        let read = sandbox.json(["channel", "read", "--channel", "general"]);
        assert_eq!(read.len(), 1, "{unsynced:?}: {read:?}");
        let doctor = sandbox.run(["doctor", "--full"]);
        assert_eq!(doctor.code, Some(0), "{unsynced:?}: {doctor:?}");
    }
}
