//! Load of a `serve` process.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use switchboard_sys::process::Spawn;

use crate::mcp::memory::resident;

/// Resources that `serve` has used since its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    /// CPU time in percent of one core.
    pub(super) cpu: f64,
    /// Memory at the end, in MiB.
    pub(super) memory: f64,
}

/// Runs `serve` for a given time and returns its load.
pub(super) async fn serve_for(program: &Path, folder: &Path, length: Duration) -> anyhow::Result<Served> {
    let spawn = Spawn::new(program).args(["serve", "--port", "0"]).cwd(folder);
    let child = spawn.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    tokio::time::sleep(length).await;
    let pid = child.pid().to_string();
    let (memory, busy) = (resident(&pid).await?, busy_seconds(&pid).await?);
    child.stop(Duration::from_secs(20)).await?;
    Ok(Served { cpu: 100.0 * busy / length.as_secs_f64(), memory })
}

/// Returns the CPU time of a process so far.
async fn busy_seconds(pid: &str) -> anyhow::Result<f64> {
    use tokio::io::AsyncReadExt;
    // `ps` works everywhere but prints whole seconds as `[DD-]HH:MM:SS`; on Linux, `/proc` reports hundredths.
    if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        let fields: Vec<&str> = stat.rsplit_once(") ").context("no stat")?.1.split(' ').collect();
        let ticks = |at: usize| -> anyhow::Result<f64> { Ok(fields.get(at).context("no time")?.parse()?) };
        return Ok((ticks(11)? + ticks(12)?) / 100.0);
    }
    let mut child = Spawn::new("ps").args(["-o", "time=", "-p", pid]).stdout(Stdio::piped()).spawn()?;
    let mut printed = String::new();
    child.stdout_reader().context("no stdout")?.read_to_string(&mut printed).await?;
    child.wait().await?;
    let seconds = printed
        .trim()
        .split([':', '-'])
        .try_fold(0.0, |sum, part| -> anyhow::Result<f64> { Ok(sum * 60.0 + part.parse::<f64>()?) })?;
    Ok(seconds)
}
