//! The Git pre-commit hook that runs the guard.

use std::path::Path;

use serde_json::json;
use switchboard_hub::WorkTree;
use switchboard_sys::files::{Dir, FileError, Moved};

use super::git;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// File name of the hook.
const NAME: &str = "pre-commit";

/// File name under which an existing hook is retained.
const BEFORE: &str = "pre-commit.before-switchboard";

/// Line that identifies a hook as written by Switchboard.
const MARK: &str = "# Written by `switchboard guard install`; `switchboard guard uninstall` takes it out.";

/// Maximum size of a hook file that is read, larger than any hand-written hook.
const LIMIT: u64 = 1 << 20;

/// Writes the hook. An existing hook is retained and runs first.
pub(super) async fn install(context: &Context) -> Result<(), Failure> {
    let hooks = folder().await?;
    let program = std::env::current_exe().map_err(anyhow::Error::from)?;
    let kept = match read(&hooks)? {
        Some(text) if !text.contains(MARK) => {
            if hooks.move_new(NAME, &hooks, BEFORE).map_err(file)? == Moved::AlreadyExists {
                let message = format!("{} is in the way", hooks.path().join(BEFORE).display());
                return Err(Failure::new("hook", Exit::Failed, message).hint("move it away, then try again"));
            }
            true
        }
        _ => hooks.stat(BEFORE).map_err(file)?.is_some(),
    };
    hooks.replace(NAME, script(&program).as_bytes(), 0o755).map_err(file)?;
    let path = hooks.path().join(NAME);
    if context.printer.is_json() {
        context.printer.object(&json!({ "hook": path.display().to_string(), "kept": kept }));
    } else {
        let also = if kept { "; the hook that was there is run first" } else { "" };
        context.printer.line(format_args!(
            "Git asks `switchboard guard` before every commit ({}){also}",
            path.display()
        ));
    }
    Ok(())
}

/// Removes the hook, and restores the hook that was there before.
pub(super) async fn uninstall(context: &Context) -> Result<(), Failure> {
    let hooks = folder().await?;
    if !read(&hooks)?.is_some_and(|text| text.contains(MARK)) {
        let message = format!("there is no hook of ours in {}", hooks.path().display());
        return Err(Failure::new("no_hook", Exit::NotFound, message));
    }
    hooks.remove(NAME).map_err(file)?;
    let back = hooks.stat(BEFORE).map_err(file)?.is_some();
    if back {
        hooks.move_new(BEFORE, &hooks, NAME).map_err(file)?;
    }
    if context.printer.is_json() {
        context.printer.object(&json!({ "removed": true, "restored": back }));
    } else {
        let also = if back { "; the hook that was there before is back" } else { "" };
        context.printer.line(format_args!("Git no longer asks `switchboard guard`{also}"));
    }
    Ok(())
}

/// Returns the folder of Git hooks, and creates it if missing. Refuses a folder inside the work tree, because its files
/// are committed and shared.
async fn folder() -> Result<Dir, Failure> {
    let current_folder = std::env::current_dir().map_err(anyhow::Error::from)?;
    let hooks = git::hooks(&current_folder).await?;
    std::fs::create_dir_all(&hooks).map_err(anyhow::Error::from)?;
    let hooks = hooks.canonicalize().map_err(anyhow::Error::from)?;
    let tree = WorkTree::of(&current_folder)?;
    if hooks.starts_with(&tree.root) && !hooks.starts_with(&tree.repository) {
        let message = format!("the hooks of this repository are files of it ({})", hooks.display());
        return Err(Failure::new("hook", Exit::Failed, message)
            .hint("add the line `switchboard guard || [ $? -ne 1 ]` to its pre-commit yourself"));
    }
    Dir::open_root(&hooks).map_err(file)
}

fn read(hooks: &Dir) -> Result<Option<String>, Failure> {
    let found = hooks.read(NAME, LIMIT).map_err(file)?;
    Ok(found.map(|found| String::from_utf8_lossy(&found.bytes).into_owned()))
}

fn file(error: FileError) -> Failure {
    Failure::from(switchboard_hub::HubError::from(error))
}

/// Renders the hook script. Only a reserved file blocks a commit; a check that could not run does not.
fn script(program: &Path) -> String {
    let program = program.display().to_string().replace('\'', "'\\''");
    format!(
        "#!/bin/sh\n{MARK}\n\
         before=\"$(dirname \"$0\")/{BEFORE}\"\n\
         if [ -x \"$before\" ]; then \"$before\" \"$@\" || exit $?; fi\n\
         guard='{program}'\n\
         [ -x \"$guard\" ] || guard=switchboard\n\
         \"$guard\" guard\n\
         [ $? -ne 1 ]\n"
    )
}
