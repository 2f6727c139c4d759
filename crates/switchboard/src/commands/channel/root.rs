//! The verb `switchboard channel root`.

use clap::Args;
use door_channels::Channels;
use serde_json::json;

use crate::cli::help::examples;
use crate::context::{Context, channel_config};
use crate::failure::Failure;
use crate::person::{Consent, require_person};

/// Show the folder of the channels, and check that it is the one used before.
///
/// A folder that `channels.root` names can be a mount. Its first use marks it with signals/folder; a folder without that
/// mark is the bare mount point or another disk, and using it is an error. --accept takes the folder that is there now.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard channel root",
    "switchboard channel root --accept",
])]
pub(crate) struct Root {
    /// Use the folder that is there now, whichever was used before
    #[arg(long)]
    accept: bool,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn run(args: Root, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let config = channel_config(&context.settings()?, &workspace);
    let root = config.root.display().to_string();
    // The default folder inside the workspace needs no check, because opening the workspace finds it.
    if args.accept && config.shared {
        require_person(&context, &format!("use {root} for the channels"), args.consent.yes)?;
        Channels::accept_root(&config, workspace.hub()).await?;
    }
    let is_shared = config.shared;
    Channels::open(config, workspace.hub().clone()).await?;
    if context.printer.is_json() {
        context.printer.object(&json!({ "root": root, "shared": is_shared }));
    } else {
        context.printer.line(&root);
    }
    workspace.close().await;
    Ok(())
}
