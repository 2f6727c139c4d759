//! The shipped binary: building it, finding it, and running it as a complete process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use switchboard_sys::process::Spawn;

use crate::progress::say;

/// Returns the path of `switchboard` next to this program.
pub(crate) fn shipped() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?.with_file_name("switchboard");
    let found = program.is_file();
    ensure!(found, "{} is missing: cargo build --release -p switchboard", program.display());
    Ok(program)
}

/// Builds the binary if cargo started this program; the build takes milliseconds if nothing has changed.
///
/// Otherwise, the existing binary is measured.
pub(crate) async fn build_shipped() -> anyhow::Result<()> {
    let (Some(cargo), Some(manifest)) = (std::env::var_os("CARGO"), std::env::var_os("CARGO_MANIFEST_DIR"))
    else {
        say!("not started by cargo: measuring the switchboard that lies beside this program");
        return Ok(());
    };
    let program = std::env::current_exe()?;
    let profile = program.parent().context("this program lies nowhere")?;
    let target = profile.parent().context("this program is not in a build folder")?;
    let profile = match profile.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let status = Spawn::new(cargo)
        .args(["build", "--quiet", "--package", "switchboard", "--profile", profile, "--target-dir"])
        .args([target])
        .cwd(manifest)
        .env_allow(&["CARGO_*", "RUST*"])
        .stderr(Stdio::inherit())
        .spawn()?
        .wait()
        .await?;
    ensure!(status.success(), "cargo could not build switchboard");
    Ok(())
}

/// Runs a program to its end and returns the duration.
pub(crate) async fn run_timed(program: &Path, args: &[&str], cwd: &Path) -> anyhow::Result<Duration> {
    let spawn = Spawn::new(program).args(args.iter().copied()).cwd(cwd).stderr(Stdio::null());
    let began = Instant::now();
    let status = spawn.spawn()?.wait().await?;
    let time = began.elapsed();
    ensure!(status.success(), "{} {} ended with {status}", program.display(), args.join(" "));
    Ok(time)
}
