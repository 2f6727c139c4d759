//! Stdio transport: starts a local program, reads its output, and stops it with all its descendants.

use std::sync::Arc;
use std::time::Duration;

use switchboard_sys::process::{Child as Process, Spawn};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::connection::{Connection, EndKind};
use super::error::ChildError;
use super::frames::{Frame, FrameError, FrameReader};
use super::pipe::PipeWriter;
use super::shared::{LiveGuard, Shared};
use super::status::count;
use super::transport::Transport;
use crate::spec::{Framing, Launch};

/// Maximum time to drain the output of a program that has ended.
///
/// This is also the maximum time for a program to exit after it closes its stdout. Both usually happen immediately; the
/// wait only preserves the order of events.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Size of the read buffer for stderr, in bytes.
const STDERR_BUFFER: usize = 16 * 1024;

/// Starts the program, without sending anything to it.
pub(super) async fn start(shared: &Arc<Shared>, framing: Framing) -> Result<Arc<Connection>, ChildError> {
    let Launch::Stdio { command, args, env, cwd, .. } = &shared.spec.launch else {
        return Err(shared.cannot_start("it is not a program", "give it a `command`"));
    };
    let mut spawn = Spawn::new(command).args(args).cwd(cwd);
    for (name, value) in env {
        spawn = spawn.env(name, value);
    }
    let mut process = spawn.start(shared.options.guard.as_ref()).await.map_err(|error| {
        let cause = match std::error::Error::source(&error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        };
        let file = shared.file().display();
        shared.cannot_start(
            cause,
            format!("check `command` and `cwd` in {file}, and that the program is in `PATH`"),
        )
    })?;
    let streams = (process.stdin_writer(), process.stdout_reader(), process.stderr_reader());
    let (Some(stdin), Some(stdout), Some(stderr)) = streams else {
        return Err(shared.cannot_start("it has no standard streams", "try again"));
    };
    let writer = PipeWriter::new(stdin, framing);
    let connection =
        Connection::new(Arc::clone(shared), Transport::Pipe(writer.clone()), Some(process.pid()));
    tokio::spawn(writer.clone().write_backlog(Arc::clone(&connection)));
    let reader = tokio::spawn(read(stdout, Arc::clone(&connection)));
    let listener = tokio::spawn(log_stderr(stderr, Arc::clone(shared)));
    tokio::spawn(supervise(process, writer, Arc::clone(&connection), reader, listener, shared.track()));
    Ok(connection)
}

/// Reads messages from stdout until the stream or the connection ends.
async fn read(mut stdout: ChildStdout, connection: Arc<Connection>) {
    let mut frames = FrameReader::new(connection.shared.options.message_cap);
    loop {
        let read = tokio::select! {
            read = stdout.read_buf(frames.buffer()) => read,
            // Stop reading: output of a child that is being stopped has no receiver.
            () = connection.ended() => return,
        };
        if !matches!(read, Ok(1..)) {
            break;
        }
        connection.mark_output();
        if let Err(error) = receive(&mut frames, &connection) {
            connection.end(error.to_string(), EndKind::Fault);
            return;
        }
    }
    let rest = frames.rest();
    if !rest.is_empty() && !connection.receive(rest, None) {
        connection.shared.log.note([rest]);
    }
}

fn receive(frames: &mut FrameReader, connection: &Arc<Connection>) -> Result<(), FrameError> {
    while let Some(frame) = frames.next()? {
        match frame {
            Frame::Message { body, is_announced } => {
                if connection.receive(body, None) {
                    continue;
                }
                if is_announced && !is_json(body) {
                    return Err(FrameError::NotJson { length: body.len() });
                }
                count(&connection.shared.counters.stdout_lines);
                connection.shared.log.note([body]);
            }
            Frame::Log(line) => {
                count(&connection.shared.counters.stdout_lines);
                connection.shared.log.note([line]);
            }
        }
    }
    Ok(())
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

/// Logs stderr line by line; splits a line only if it is too long.
async fn log_stderr(mut stderr: ChildStderr, shared: Arc<Shared>) {
    let mut bytes = Vec::with_capacity(STDERR_BUFFER);
    while let Ok(1..) = stderr.read_buf(&mut bytes).await {
        let whole = match bytes.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => end + 1,
            None if bytes.len() >= STDERR_BUFFER => bytes.len(),
            None => continue,
        };
        shared.log.note(bytes[..whole].split(|&byte| byte == b'\n'));
        bytes.drain(..whole);
    }
    shared.log.note([&bytes[..]]);
}

/// Waits until the process or the connection ends, and then stops the process.
async fn supervise(
    mut process: Process,
    writer: PipeWriter,
    connection: Arc<Connection>,
    mut reader: JoinHandle<()>,
    listener: JoinHandle<()>,
    _living: LiveGuard,
) {
    let exited = tokio::select! {
        status = process.wait() => Some(status),
        // A program that closed its stdout is useless. It is usually about to exit, and its exit status is a better
        // cause.
        _ = &mut reader => timeout(DRAIN_TIMEOUT, process.wait()).await.ok(),
        () = connection.ended() => None,
    };
    if let Some(status) = exited {
        // The whole process group has ended, so both streams end as soon as they are drained.
        let _ = timeout(DRAIN_TIMEOUT, async {
            if !reader.is_finished() {
                let _ = reader.await;
            }
            let _ = listener.await;
        })
        .await;
        let cause = status.map_or_else(|error| error.to_string(), |status| format!("it ended ({status})"));
        connection.end(cause, EndKind::Crash);
    } else {
        connection.end("it closed its stdout", EndKind::Crash);
        writer.close();
        let is_fault = connection.ending().is_some_and(|ending| ending.kind == EndKind::Fault);
        let grace = if is_fault { Duration::ZERO } else { connection.shared.options.grace };
        if let Err(error) = process.stop(grace).await {
            tracing::warn!(child = connection.shared.name(), %error, "a child cannot be waited for");
        }
    }
}
