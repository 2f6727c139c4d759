//! The verb `switchboard router`.

mod running;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use door_workers::{Access, AccessToken, Transport, serve};
use serde_json::json;
use switchboard_mcp::{Token, standard_input, standard_output};
use switchboard_sys::files::Dir;
use tokio_util::sync::CancellationToken;

pub(crate) use self::running::Running;
use crate::cli::help::examples;
use crate::commands::mcp::stop_at_signals;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Maximum size of the tokens file, which has one line per token.
const TOKENS: u64 = 64 << 10;

/// Let a program drive workers over NDJSON on stdin or a socket.
///
/// The protocol is codeswarm.router.v1: commands in, events out. `switchboard serve` offers the same on
/// `.switchboard/router.sock`. One router runs in a workspace at a time.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard router",
    "switchboard router --listen 127.0.0.1:7000 --tokens tokens.txt",
])]
pub(crate) struct Router {
    /// Read commands on stdin and write events on stdout (the default without --listen)
    #[arg(long)]
    stdio: bool,

    /// Listen for clients: 127.0.0.1:PORT with a token, or unix:FILE (`router.legacyClients` in your own settings admits
    /// clients of the older router without one)
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,

    /// Choose what to do when stdin ends
    #[arg(long, value_name = "ACTION", default_value = "drain")]
    on_eof: OnEof,

    /// Read clients' tokens from this file, one `OWNER TOKEN` per line, each valid for its owner's jobs
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
}

/// Action of the router when stdin ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnEof {
    /// Finish running work
    Drain,
    /// Stop at once
    Stop,
}

pub(crate) async fn run(args: Router, context: Context) -> Result<(), Failure> {
    switchboard_sys::platform::raise_file_limit(16_384);
    let workspace = context.open().await?;
    let shutdown = CancellationToken::new();
    stop_at_signals(shutdown.clone())?;
    let access = match &args.listen {
        Some(address) if !address.starts_with("unix:") => tokens(args.tokens.as_deref())?,
        _ => Access::default(),
    };
    let folder = context.workspace_folder()?;
    let legacy = context.settings()?.legacy_router;
    let running = Running::start(&workspace, folder, args.listen.as_deref(), access, legacy).await?;
    let is_stdio = args.stdio || args.listen.is_none();
    if let Some(address) = running.address().filter(|_| !is_stdio) {
        announce(&context, &address);
    }
    if is_stdio {
        stdio(&args, &running, shutdown).await?;
    } else {
        shutdown.cancelled().await;
        running.close().await;
    }
    workspace.close().await;
    Ok(())
}

/// Serves the parent program over stdio until it disconnects and all events are written.
async fn stdio(args: &Router, running: &Running, shutdown: CancellationToken) -> Result<(), Failure> {
    let (input, output) = (standard_input()?, standard_output()?);
    let (eof, closing) = (CancellationToken::new(), CancellationToken::new());
    // The program at the other end of stdin is an ancestor of this process.
    let access = Access { client_pid: Some(std::process::id()), ..Access::default() };
    let serving =
        serve(running.router(), input, output, Transport::Stdio, &access, eof.clone(), closing.clone());
    let ending = async {
        tokio::select! {
            () = eof.cancelled() => {
                if args.on_eof == OnEof::Drain {
                    tokio::select! {
                        () = running.router().idle() => {}
                        () = shutdown.cancelled() => {}
                    }
                }
            }
            () = shutdown.cancelled() => {}
        }
        running.close().await;
        closing.cancel();
        std::future::pending::<()>().await;
    };
    let served = tokio::select! {
        served = serving => served,
        () = ending => Ok(()),
    };
    // The only client has disconnected, so its workers end too.
    running.close().await;
    match served {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(anyhow::Error::from(error).into())
        }
        _ => Ok(()),
    }
}

fn announce(context: &Context, address: &str) {
    if context.printer.is_json() {
        context.printer.object(&json!({ "listening": address, "pid": std::process::id() }));
    } else {
        context.printer.line(format_args!("Listening on {address}. Stop with Ctrl-C."));
    }
}

/// Creates a new token for the user, and reads the tokens of other owners from the file.
fn tokens(file: Option<&Path>) -> Result<Access, Failure> {
    let own = Token::generate()?.reveal().to_owned();
    let mut tokens = vec![AccessToken { token: own, owner: None }];
    let Some(path) = file else { return Ok(Access { tokens, ..Access::default() }) };
    let bad = |problem: String| {
        Failure::new("bad_tokens", Exit::Usage, format!("{}: {problem}", path.display()))
            .hint("write one `OWNER TOKEN` a line, tokens of at least 43 letters and digits")
    };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let found = Dir::open_root(folder).and_then(|folder| folder.read(name, TOKENS));
    let found =
        found.map_err(|error| bad(error.to_string()))?.ok_or_else(|| bad("it is not there".into()))?;
    for line in String::from_utf8_lossy(&found.bytes).lines().filter(|line| !line.trim().is_empty()) {
        let (owner, token) =
            line.split_once(char::is_whitespace).ok_or_else(|| bad("a line without a token".into()))?;
        let token = Token::from_text(token).map_err(|error| bad(error.to_string()))?;
        tokens.push(AccessToken { token: token.reveal().to_owned(), owner: Some(owner.to_owned()) });
    }
    Ok(Access { tokens, ..Access::default() })
}
