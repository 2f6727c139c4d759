//! Tool that copies a file of the workspace to the person's clipboard.

use std::process::Stdio;
use std::time::Duration;

use door_workspace::{WorkspaceError, locate_artifact};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use switchboard_core::error_chain;
use switchboard_sys::blocking;
use switchboard_sys::files::Dir;
use switchboard_sys::process::Spawn;
use tokio::io::AsyncWriteExt;

use super::ToolContext;
use crate::answer::{Answer, Outcome, ToolError};

pub(super) const HANDOFF_CLIPBOARD: &str = "Copy a file of the workspace to the person's clipboard.";

/// Token file that must not be copied: its owner can act as any agent.
const SECRET: &str = ".switchboard/auth_token";

/// Maximum size of the file in bytes, which is more than a person would paste.
const LIMIT: u64 = 1 << 20;

/// Clipboard programs that read stdin, each with its arguments.
const PROGRAMS: [(&str, &[&str]); 5] = [
    ("pbcopy", &[]),
    ("wl-copy", &[]),
    ("xclip", &["-selection", "clipboard"]),
    ("xsel", &["--clipboard", "--input"]),
    ("clip.exe", &[]),
];

/// Environment variables through which clipboard programs find the screen.
const SCREEN_VARS: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY"];

/// Timeout of a clipboard program, after which it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HandoffClipboard {
    /// Path of the file in the workspace.
    file: String,
}

pub(super) async fn handoff_clipboard(ctx: &ToolContext<'_>, input: HandoffClipboard) -> Outcome {
    ctx.me()?;
    let (tree, path) = (ctx.workspace.tree().clone(), input.file.clone());
    let bytes = blocking::run(move || tree.workspace().map(|folder| read(&folder, &path)))
        .await
        .map_err(|_| WorkspaceError::Closed)?
        .map_err(WorkspaceError::from)?;
    let bytes = bytes.map_err(|reason| {
        ToolError::new(format!("'{}' cannot be handed over: {reason}", input.file.escape_debug()))
            .next("Give the path of a text file from the workspace's folder.")
    })?;
    for (program, arguments) in PROGRAMS {
        if copy(program, arguments, &bytes).await? {
            let text = format!("Copied {} ({} bytes) to the clipboard.", input.file, bytes.len());
            return Ok(Answer::new(
                text,
                json!({ "file": input.file, "bytes": bytes.len(), "program": program }),
            ));
        }
    }
    let programs: Vec<&str> = PROGRAMS.iter().map(|(program, _)| *program).collect();
    Err(ToolError::new("No clipboard program works here").next(format!(
        "The person can install one of {}, or open the file {}.",
        programs.join(", "),
        input.file
    )))
}

/// Reads a file inside the workspace, after resolving symbolic links.
fn read(workspace: &Dir, path: &str) -> Result<Vec<u8>, String> {
    let root = workspace.path().canonicalize().map_err(|error| error.to_string())?;
    let inside = locate_artifact(&root, path.trim()).map_err(str::to_owned)?;
    if inside == SECRET {
        return Err("it is the key to this server".to_owned());
    }
    let mut names: Vec<&str> = inside.split('/').collect();
    let file = names.pop().unwrap_or_default();
    let mut folder = workspace.clone();
    for name in names {
        let below = folder.subdir(name).map_err(|error| error_chain(&error))?;
        folder = below.ok_or("not found")?;
    }
    let found = folder.read(file, LIMIT).map_err(|error| error_chain(&error))?;
    Ok(found.ok_or("not found")?.bytes)
}

/// Passes the content to one clipboard program.
///
/// Returns false if the program is missing or cannot reach a clipboard.
async fn copy(program: &str, arguments: &[&str], bytes: &[u8]) -> Result<bool, ToolError> {
    let spawn = Spawn::new(program)
        .args(arguments.iter().copied())
        .env_allow(&SCREEN_VARS)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A missing program is normal: most machines have at most one of them.
    let Ok(mut child) = spawn.spawn() else { return Ok(false) };
    let fed = async {
        if let Some(mut stdin) = child.stdin_writer() {
            stdin.write_all(bytes).await?;
        }
        // Without a clipboard manager, the program must keep running to serve the content, so detach from it.
        child.wait_and_detach().await
    };
    match tokio::time::timeout(TIMEOUT, fed).await {
        Ok(Ok(status)) => Ok(status.success()),
        // Try the next program: a program without a screen may exit before it has read all input.
        Ok(Err(_)) => Ok(false),
        Err(_) => {
            Err(ToolError::new(format!("{program} did not take the file within {} s", TIMEOUT.as_secs())))
        }
    }
}

#[cfg(test)]
#[path = "clipboard_tests.rs"]
mod tests;
