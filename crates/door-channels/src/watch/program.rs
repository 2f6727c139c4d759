//! Execution of the program that answers.

use std::io;
use std::time::Duration;

use switchboard_core::Name;
use switchboard_sys::lineage::LaunchKind;
use switchboard_sys::process::{Spawn, SpawnError};
use switchboard_sys::reaper::ReaperClient;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::{PromptInput, WatcherConfig};

/// Maximum bytes of output. An answer has a few pages, but the events around it may be many.
const OUTPUT: usize = 16 << 20;

/// Maximum bytes of stderr that are retained: the end, which contains the reason of a failure.
const COMPLAINTS: usize = 4 << 10;

/// Maximum length of an argument that every supported system accepts.
const ARGUMENT: usize = 100 << 10;

/// Reason why the program gave no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramError {
    #[error("no program is set; give one after `--`, or a preset")]
    NoProgram,
    #[error(transparent)]
    Start(#[from] SpawnError),
    #[error("the program took longer than {} s and was ended", .after.as_secs())]
    TimedOut { after: Duration },
    #[error("the program ended with {status}{}", last_line(.complaints))]
    Exit { status: std::process::ExitStatus, complaints: String },
    #[error("the program printed more than {limit} bytes and was ended")]
    TooMuch { limit: usize },
    #[error("the answer has {size} bytes and the limit is {limit}")]
    TooLong { size: usize, limit: usize },
    #[error("the output is not UTF-8 text (first bad byte at {at})")]
    NotUtf8 { at: usize },
    #[error("the program says: {reason}")]
    Reported { reason: String },
    #[error("the program succeeded, but its output has no answer")]
    NoAnswer,
    #[error(
        "the prompt has {size} bytes, more than the {limit} that fit an argument; use a program that reads stdin"
    )]
    LongArgument { size: usize, limit: usize },
    #[error("the input or output of the program failed")]
    Streams(#[from] io::Error),
}

fn last_line(complaints: &str) -> String {
    let last = complaints.lines().rev().find(|line| !line.trim().is_empty());
    last.map(|line| format!(": {}", line.trim())).unwrap_or_default()
}

/// Runs the program to its end and returns its output.
///
/// All its descendants are killed when it ends, even if this process is killed.
pub(super) async fn run_program(
    watcher: &WatcherConfig,
    agent: &Name,
    prompt: &str,
    guard: Option<&ReaperClient>,
) -> Result<Vec<u8>, ProgramError> {
    let (program, args) = watcher.command.split_first().ok_or(ProgramError::NoProgram)?;
    let mut spawn = Spawn::new(program).args(args);
    if watcher.prompt_input == PromptInput::Argument {
        if prompt.len() > ARGUMENT {
            return Err(ProgramError::LongArgument { size: prompt.len(), limit: ARGUMENT });
        }
        spawn = spawn.args([prompt]);
    }
    if let Some(folder) = &watcher.folder {
        spawn = spawn.cwd(folder);
    }
    let names: Vec<&str> = watcher.env.iter().map(String::as_str).collect();
    spawn = spawn.env_allow(&names).for_agent(LaunchKind::Watcher, agent.as_str());
    let mut child = spawn.start(guard).await?;
    let stdin = child.stdin_writer().filter(|_| watcher.prompt_input == PromptInput::Stdin);
    let (stdout, stderr) = (child.stdout_reader(), child.stderr_reader());
    let work = async {
        let write_prompt = async {
            if let Some(mut stdin) = stdin {
                // Ignore the error: a program may close stdin without reading it.
                let _ = stdin.write_all(prompt.as_bytes()).await;
                let _ = stdin.shutdown().await;
            }
            Ok(())
        };
        let hear = async {
            match stdout {
                Some(stdout) => read_at_most(stdout).await,
                None => Ok(Vec::new()),
            }
        };
        let complaints = async {
            match stderr {
                Some(stderr) => Ok(read_end(stderr).await),
                None => Ok(String::new()),
            }
        };
        let ((), output, complaints) = tokio::try_join!(write_prompt, hear, complaints)?;
        let status = child.wait().await?;
        if status.success() { Ok(output) } else { Err(ProgramError::Exit { status, complaints }) }
    };
    // On an early return the child is dropped, which kills its process group.
    tokio::time::timeout(watcher.timeout, work)
        .await
        .unwrap_or(Err(ProgramError::TimedOut { after: watcher.timeout }))
}

async fn read_at_most(stream: impl AsyncRead + Unpin) -> Result<Vec<u8>, ProgramError> {
    let mut output = Vec::new();
    let most = u64::try_from(OUTPUT).unwrap_or(u64::MAX).saturating_add(1);
    stream.take(most).read_to_end(&mut output).await?;
    if output.len() > OUTPUT { Err(ProgramError::TooMuch { limit: OUTPUT }) } else { Ok(output) }
}

/// Reads a stream to its end and returns the last part.
async fn read_end(mut stream: impl AsyncRead + Unpin) -> String {
    let mut kept = Vec::new();
    let mut piece = vec![0; COMPLAINTS];
    while let Ok(read @ 1..) = stream.read(&mut piece).await {
        kept.extend_from_slice(&piece[..read]);
        let extra = kept.len().saturating_sub(COMPLAINTS);
        kept.drain(..extra);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
