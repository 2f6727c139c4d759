//! Conversion of the doors' errors into failures, except for the workspace's.

use door_channels::ChannelError;
use door_nats::NatsError;
use door_suites::{SuiteError, WrapperError};
use door_swarm::SwarmError;
use door_workers::RouterError;
use switchboard_core::error_chain;
use switchboard_mcp::McpError;

use super::{ANOTHER_FOLDER, Exit, Failure, or_list};
use crate::commands::worker::refusal;

impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Self {
        let message = error_chain(&error);
        match error {
            ChannelError::Hub(error) => error.into(),
            ChannelError::Root { .. } => Self::temporary("no_channels", message)
                .hint("create the folder, mount it, or correct channels.root in your settings"),
            ChannelError::IdentityMismatch { .. } => {
                Self::temporary("channels_unmounted", message).hint(ANOTHER_FOLDER)
            }
            ChannelError::NoIdentity { .. } => Self::temporary("channels_unmarked", message)
                .hint("make the folder writable, so that its first use can mark it with signals/folder"),
            ChannelError::NotWritten { .. } => Self::temporary("not_delivered", message)
                .hint("do not post it again: `switchboard serve` writes its file as soon as it can"),
            ChannelError::UnknownChannel { near, .. } => {
                let failure = Self::new("unknown_channel", Exit::NotFound, message);
                failure.hint(if near.is_empty() {
                    "`switchboard channel list` lists the channels; the first post creates one".to_owned()
                } else {
                    format!("did you mean {}?", or_list(&near))
                })
            }
            ChannelError::UnknownMessage { .. } => Self::new("unknown_message", Exit::NotFound, message)
                .hint("`switchboard channel read` lists messages with their ids"),
            ChannelError::Ahead { .. } => Self::new("cursor_ahead", Exit::Failed, message)
                .hint("continue from the newest message, or omit --since"),
            ChannelError::Expired { .. } => Self::new("cursor_expired", Exit::Failed, message)
                .hint("omit --since; `switchboard thread ID` shows messages in the journal"),
            ChannelError::Field { .. } | ChannelError::Malformed(_) => {
                Self::new("bad_field", Exit::Usage, message)
            }
            ChannelError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            ChannelError::File(_) => Self::new("file", Exit::Failed, message),
            ChannelError::FilePending { .. } => Self::temporary("awaited", message),
            ChannelError::Closed => Self::temporary("closed", message),
        }
    }
}

impl From<RouterError> for Failure {
    fn from(error: RouterError) -> Self {
        let message = error_chain(&error);
        match error {
            RouterError::Hub(error) => error.into(),
            RouterError::UntrustedEndpoint { .. } => Self::new("router_file", Exit::NotAllowed, message)
                .hint(
                    "remove .switchboard/router.json, and start `switchboard serve` or `switchboard router`",
                ),
            RouterError::NotRunning => Self::new("no_router", Exit::Temporary, message)
                .hint("start `switchboard serve` in this workspace, in another terminal"),
            RouterError::Unresponsive { pid } => Self::temporary("router_silent", message)
                .hint(format!("`fg` in its terminal or `kill -CONT {pid}` continues it")),
            RouterError::Rejected { code, field, reason } => refusal(&code, field.as_deref(), &reason),
            RouterError::InvalidAddress { .. } | RouterError::NotLoopback { .. } => {
                Self::new("bad_address", Exit::Usage, message)
            }
            RouterError::Listen { source, .. } => {
                let hint = match source.kind() {
                    std::io::ErrorKind::NotFound => "create the folder of the socket first",
                    _ => "choose another port, or a shorter path for a socket",
                };
                Self::new("cannot_listen", Exit::Failed, message).hint(hint)
            }
            RouterError::Disconnected { .. } | RouterError::Connection(_) => {
                Self::temporary("router_gone", message).hint("check whether `switchboard serve` still runs")
            }
            RouterError::File(_) | RouterError::Log { .. } => Self::new("file", Exit::Failed, message),
        }
    }
}

impl From<SuiteError> for Failure {
    fn from(error: SuiteError) -> Self {
        let message = error_chain(&error);
        match error {
            SuiteError::NoWorkspace { .. } => {
                Self::new("no_workspace", Exit::NotFound, message).hint("create one with `switchboard init`")
            }
            SuiteError::Config { .. } => Self::new("bad_config", Exit::Failed, message)
                .hint("correct the file; docs/configuration.md lists its keys"),
            SuiteError::BadName { .. } => Self::new("bad_name", Exit::Usage, message),
            SuiteError::Field { .. } => Self::new("bad_field", Exit::Usage, message),
            SuiteError::UnknownChild { .. } => Self::new("unknown_server", Exit::NotFound, message)
                .hint("`switchboard suite list` lists all, also those with a problem"),
            SuiteError::NameTaken { name, .. } => Self::new("name_taken", Exit::Failed, message)
                .hint(format!("choose another name, or `switchboard suite remove \"{name}\"` first")),
            SuiteError::NothingToApprove { .. } => Self::new("nothing_to_approve", Exit::NotFound, message)
                .hint("`switchboard suite pins` lists what waits for approval"),
            SuiteError::BadFile { .. } => Self::new("bad_file", Exit::Failed, message),
            SuiteError::NoClientSettings { .. } => {
                Self::new("no_settings", Exit::NotFound, message).hint("give their path with --file PATH")
            }
            SuiteError::NoBackup { .. } => Self::new("no_backup", Exit::NotFound, message)
                .hint("only imports of `switchboard init` can be reverted"),
            SuiteError::Edited { .. } => Self::new("edited", Exit::NotAllowed, message)
                .hint("`switchboard suite revert --force` restores the old file and drops the edits"),
            SuiteError::ModifiedConcurrently { .. } => {
                Self::temporary("changed", message).hint("run `switchboard init` again")
            }
            SuiteError::Disabled { name } => Self::new("disabled", Exit::NotFound, message)
                .hint(format!("remove suites.{name}.enabled from switchboard.config.json")),
            SuiteError::Lock(_) => Self::temporary("locked", message).hint("try again"),
            SuiteError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            SuiteError::File(_) => Self::new("file", Exit::Failed, message),
        }
    }
}

impl From<WrapperError> for Failure {
    fn from(error: WrapperError) -> Self {
        let message = error_chain(&error);
        match error {
            WrapperError::Suite(error) => error.into(),
            WrapperError::File(error) => SuiteError::from(error).into(),
            WrapperError::AlreadyWrapped { .. } => Self::new("already_wrapped", Exit::Failed, message),
            WrapperError::NotWrapped { .. } => Self::new("not_wrapped", Exit::NotFound, message),
            WrapperError::NotTrusted { .. } | WrapperError::OriginalChanged { .. } => {
                Self::new("not_trusted", Exit::NotAllowed, message)
            }
            _ => Self::new("wrapper", Exit::Failed, message),
        }
    }
}

impl From<NatsError> for Failure {
    fn from(error: NatsError) -> Self {
        let message = error_chain(&error);
        match error {
            NatsError::Hub(error) => error.into(),
            NatsError::File(_) => Self::new("file", Exit::Failed, message),
            NatsError::Credentials { .. } => Self::new("bad_credentials", Exit::NotAllowed, message)
                .hint("correct the path in the section `nats` of your settings, or the file"),
            NatsError::ForeignStream { .. } | NatsError::NameTaken { .. } => {
                Self::new("nats", Exit::Failed, message)
            }
            NatsError::Unreachable { .. }
            | NatsError::Thread { .. }
            | NatsError::Server { .. }
            | NatsError::Lost => Self::temporary("nats", message)
                .hint("messages for other hubs wait; `switchboard doctor` shows details"),
        }
    }
}

/// Returns the setting to correct if the settings, rather than the peer, cause the error.
fn swarm_setting(error: &switchboard_https::Error) -> Option<&'static str> {
    use switchboard_https::Error;
    match error {
        Error::Bind { .. } | Error::NotLoopback { .. } => {
            Some("set swarm.listen in your settings, or give --swarm-listen to `serve --behind-proxy`")
        }
        Error::Http3BehindProxy => Some("set swarm.http3 to false"),
        Error::BadHeader { .. } => {
            Some("set swarm.behindProxy, or --behind-proxy, to x-forwarded-for or x-real-ip")
        }
        Error::TermsNotAgreed { .. } => Some("read them, then set swarm.acme.agree to true"),
        Error::BadName { .. } | Error::NoNames => {
            Some("set swarm.acme.names to the host names of the endpoint")
        }
        Error::BadDirectory { .. } => Some("set swarm.acme.directory"),
        Error::BadAllowed { .. } => Some("correct swarm.allow in your settings"),
        Error::File(_)
        | Error::NoFile { .. }
        | Error::BadPem { .. }
        | Error::OpenKey { .. }
        | Error::OtherKey { .. }
        | Error::Unusable { .. }
        | Error::NoCa
        | Error::Rcgen(_) => Some("correct swarm.cert, swarm.key and swarm.ca in your settings"),
        _ => None,
    }
}

impl From<SwarmError> for Failure {
    fn from(error: SwarmError) -> Self {
        let (message, temporary) = (error_chain(&error), error.is_temporary());
        let or = |near: &[String], otherwise: &str| {
            if near.is_empty() { otherwise.to_owned() } else { format!("did you mean {}?", or_list(near)) }
        };
        match error {
            SwarmError::Hub(error) => error.into(),
            SwarmError::NoIdentity { .. } => Self::new("no_identity", Exit::NotFound, message)
                .hint("create one with `switchboard swarm init --agent NAME --endpoint https://HOST/swarm`"),
            SwarmError::WhichIdentity { .. } => {
                Self::new("which_identity", Exit::Usage, message).hint("choose one with --agent NAME")
            }
            SwarmError::UnknownSwarm { near, .. } => Self::new("unknown_swarm", Exit::NotFound, message)
                .hint(or(&near, "`switchboard swarm list` lists them")),
            SwarmError::NotAMember { near, swarm, .. } => {
                Self::new("not_a_member", Exit::NotFound, message)
                    .hint(or(&near, &format!("`switchboard swarm members {swarm}` lists them")))
            }
            SwarmError::WhichSwarm { swarms } => match swarms.as_slice() {
                [] => Self::new("unknown_swarm", Exit::NotFound, message)
                    .hint("`switchboard swarm list --all` also lists ended ones"),
                _ => Self::new("which_swarm", Exit::Usage, message)
                    .hint("name one of them: `members`, `sync` and `leave` take it as their argument, the others with --swarm"),
            },
            SwarmError::NotPending { .. } => {
                Self::new("not_found", Exit::NotFound, message).hint("`switchboard swarm list` shows pending requests")
            }
            SwarmError::UnknownInvite { .. } => {
                Self::new("not_found", Exit::NotFound, message).hint("`switchboard swarm invites` lists them")
            }
            SwarmError::NoOpenTransfer { .. } => Self::new("not_found", Exit::NotFound, message),
            SwarmError::NotMaster { .. } | SwarmError::MasterCannotLeave { .. } | SwarmError::NotActive { .. } => {
                Self::new("not_allowed", Exit::NotAllowed, message)
            }
            SwarmError::IdentityExists { .. } | SwarmError::AlreadyMember { .. } | SwarmError::RealmTaken { .. } => {
                Self::new("already_there", Exit::Failed, message)
            }
            SwarmError::PeerId(_)
            | SwarmError::Endpoint(_)
            | SwarmError::Reference(_)
            | SwarmError::Realm { .. }
            | SwarmError::Field { .. } => Self::new("bad_field", Exit::Usage, message),
            SwarmError::Invite(_) => Self::new("bad_invite", Exit::NotAllowed, message),
            SwarmError::Refused { .. } if !temporary => Self::new("refused", Exit::NotAllowed, message),
            SwarmError::Https(error) if swarm_setting(&error).is_some() => {
                Self::new("listener", Exit::Failed, message).hint(swarm_setting(&error).unwrap_or_default())
            }
            SwarmError::Refused { .. } | SwarmError::Https(_) => Self::temporary("unreachable", message)
                .hint("try again; for a private network, name its CA in swarm.ca and its addresses in swarm.allow"),
            SwarmError::BadAnswer { .. } => Self::new("bad_answer", Exit::NotAllowed, message),
            SwarmError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            SwarmError::File(_) | SwarmError::Key(_) | SwarmError::State(_) | SwarmError::Damaged { .. } => {
                Self::new("file", Exit::Failed, message)
            }
        }
    }
}

impl From<McpError> for Failure {
    fn from(error: McpError) -> Self {
        let message = error_chain(&error);
        match error {
            McpError::Bind { .. } => Self::new("port_taken", Exit::Failed, message)
                .hint("`switchboard serve --port 0` takes any free port"),
            McpError::BadToken { .. } => Self::new("bad_token", Exit::Failed, message)
                .hint("start without --keep-token to create a new one"),
            McpError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            _ => Self::new("mcp", Exit::Failed, message),
        }
    }
}
