//! What tests need from the machine, and what to do where it has not got it.

use std::process::Command;

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
