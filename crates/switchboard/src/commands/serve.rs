//! `switchboard serve`

use clap::Args;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::failure::Failure;

/// Keep the workspace going until you stop it: take in dropped files at once, deliver what other
/// processes left, retry, repair, archive what has expired.
#[derive(Debug, Args)]
pub(crate) struct Serve {}

pub(crate) async fn run(_: Serve, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let service = workspace.hub().claim_service("serve")?;
    let outbound = workspace.hub().open_door(switchboard_core::Door::Workspace).await?;
    let shutdown = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(anyhow::Error::from)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(anyhow::Error::from)?;
    let stop = shutdown.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    });
    let folder = workspace.tree().root().path().display().to_string();
    if context.printer.is_json() {
        context.printer.object(&json!({ "serving": folder, "pid": std::process::id() }));
    } else {
        context.printer.line(format_args!("Serving {folder}; stop with Ctrl-C."));
    }
    let result = door_workspace::run(workspace.clone(), outbound, shutdown).await;
    workspace.close().await;
    drop(service);
    Ok(result?)
}
