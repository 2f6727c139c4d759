//! The verb `switchboard swarm endpoint`, by which a person sets the endpoint of a member.

use clap::Args;
use door_swarm::Swarms;

use super::InSwarm;
use super::membership::print_action;
use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::Failure;
use crate::person::{Consent, require_person};
use crate::show;

/// Set the endpoint of a member, for example to undo a change.
///
/// The master's change is announced to all members; a member's holds for its own hub only.
#[derive(Debug, Args)]
#[command(after_long_help = examples!["switchboard swarm endpoint bob https://bob.example/swarm --swarm research"])]
pub(crate) struct SetEndpoint {
    /// The member
    member: String,
    /// Its endpoint: `https://` and a host, usually with the path `/swarm`
    endpoint: String,
    #[command(flatten)]
    scope: InSwarm,
    #[command(flatten)]
    consent: Consent,
}

pub(super) async fn set_endpoint(
    args: SetEndpoint,
    context: &Context,
    swarms: &Swarms,
) -> Result<(), Failure> {
    let action =
        format!("set the endpoint of {} to {}", show::plain(&args.member), show::plain(&args.endpoint));
    require_person(context, &action, args.consent.yes)?;
    let set = swarms.set_endpoint(args.scope.swarm.as_deref(), &args.member, &args.endpoint).await?;
    print_action(context, "set", set.id.as_str());
    if !set.is_announced {
        context.printer.note(
            "This holds for your hub until the master sends its roster: ask the master to set it for all members.",
        );
    }
    Ok(())
}
