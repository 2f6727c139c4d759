//! Git queries for the guard: staged files and the hooks folder.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use switchboard_sys::git;
use switchboard_sys::process::Spawn;
use tokio::io::AsyncReadExt;

use crate::failure::{Exit, Failure};

/// Maximum output of a Git query: more than the file list of any commit, and little enough for memory.
const ANSWER: u64 = 64 << 20;

/// Timeout of a Git query, which waits for nothing but the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lists the files that the next commit changes, adds or removes, by their paths in the work tree.
pub(super) async fn staged(folder: &Path) -> Result<Vec<String>, Failure> {
    // `--no-renames` lists both names of a renamed file, because either may be reserved.
    let words = ["diff", "--cached", "--name-only", "--no-renames", "--no-ext-diff", "--no-textconv", "-z"];
    let output = ask(git::command(folder), &words).await?;
    let paths = output.split(|byte| *byte == 0).filter(|path| !path.is_empty());
    Ok(paths.map(|path| String::from_utf8_lossy(path).into_owned()).collect())
}

/// Returns the folder in which Git looks for hooks.
pub(super) async fn hooks(folder: &Path) -> Result<PathBuf, Failure> {
    let output = ask(git::query(folder), &["rev-parse", "--git-path", "hooks"]).await?;
    Ok(folder.join(String::from_utf8_lossy(&output).trim_end_matches('\n')))
}

async fn ask(git: Spawn, args: &[&str]) -> Result<Vec<u8>, Failure> {
    let failed = |problem: String| {
        Failure::new("git", Exit::Failed, problem).hint("`switchboard guard` is for repositories of Git")
    };
    let asking = async {
        let mut child = git
            .args(args.iter().copied())
            // Within a hook, Git passes the index and the folder of the commit in these variables.
            .env_allow(&["GIT_*"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| failed(switchboard_core::error_chain(&error)))?;
        let (mut output, mut complaint) = (Vec::new(), Vec::new());
        if let (Some(stdout), Some(stderr)) = (child.stdout_reader(), child.stderr_reader()) {
            let (mut stdout, mut stderr) = (stdout.take(ANSWER), stderr.take(ANSWER));
            let _ = tokio::join!(stdout.read_to_end(&mut output), stderr.read_to_end(&mut complaint));
        }
        let status = child.wait().await.map_err(|error| failed(format!("git: {error}")))?;
        if status.success() {
            return Ok(output);
        }
        Err(failed(format!("git {}: {}", args[0], String::from_utf8_lossy(&complaint).trim())))
    };
    let late = |_| failed(format!("git {} did not answer within {} s", args[0], PATIENCE.as_secs()));
    tokio::time::timeout(PATIENCE, asking).await.map_err(late)?
}
