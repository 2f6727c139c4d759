//! The verb `switchboard receipt`.

use clap::Args;
use serde_json::json;
use switchboard_actions::{self as actions, Actor, ReceiptView};

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::show;

/// Show the delivery status of a message, for each recipient.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard receipt msg_1a2b3c"])]
pub(crate) struct ReceiptOf {
    /// The message
    id: String,
}

pub(crate) async fn run(args: ReceiptOf, context: Context) -> Result<(), Failure> {
    let workspace = context.open().await?;
    let me = context.identity()?;
    let ReceiptView { stored, receipt, terminal: typed } =
        actions::receipt(Actor::new(&workspace, &me), &args.id)
            .await
            .map_err(|error| Failure::of_action("receipt", error))?;
    let printer = context.printer;
    if printer.is_json() {
        let mut object = show::receipt_object(&stored.message, &receipt, true);
        if let Some(typed) = &typed {
            object["terminal"] = json!({ "status": typed.status(), "reason": typed.reason() });
        }
        show::note_disk(&mut object, workspace.hub());
        printer.object(&object);
    } else {
        printer.line(format_args!(
            "{} to {}: {}",
            door_workspace::native_id(&stored.message),
            receipt.to,
            show::state_name(&receipt)
        ));
        for delivery in &receipt.deliveries {
            let times: Vec<String> =
                show::times(delivery).iter().map(|(state, at)| format!("{state} {at:.3}")).collect();
            printer.line(format_args!("  {} by {}: {}", delivery.agent, delivery.route, times.join(", ")));
            if let Some(note) = &delivery.note {
                printer.line(format_args!("    {}", show::inline(note)));
            }
        }
        if let Some(typed) = &typed {
            printer.line(format_args!("  at the terminal: {}", show::inline(&typed.note())));
        }
    }
    workspace.close().await;
    Ok(())
}
