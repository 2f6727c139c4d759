//! How an error reaches the person: what went wrong, what to do next, and the exit code.

use door_channels::ChannelError;
use door_nats::NatsError;
use door_suites::{SuiteError, WrapperError};
use door_swarm::SwarmError;
use door_workers::RouterError;
use door_workspace::{RoleError, TeamMailError, WorkflowError, WorkspaceError};
use switchboard_core::{AddressError, GroupId, NameError, ResolveError, Stop, TaskNameError};
use switchboard_hub::files::FileError;
use switchboard_hub::{HubError, WorkTreeError};
use switchboard_mcp::McpError;

use crate::commands::worker::refusal;

/// The exit codes, everywhere the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    Temporary = 3,
    NotAllowed = 4,
    NotFound = 5,
}

/// An error on its way out.
#[derive(Debug)]
pub(crate) struct Failure {
    /// A word for programs.
    pub(crate) code: &'static str,
    /// What went wrong, for people.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) hint: Option<String>,
    pub(crate) exit: Exit,
}

impl Failure {
    pub(crate) fn new(code: &'static str, exit: Exit, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, exit }
    }

    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// A command line that clap refused; its first paragraph is the message.
    pub(crate) fn usage(kind: String, text: &str) -> Self {
        let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
        let message = text.lines().map(str::trim).take_while(|line| !line.is_empty());
        let message = message.collect::<Vec<_>>().join(" ");
        let message = message.strip_prefix("error: ").map_or(message.clone(), str::to_owned);
        let message = if message.is_empty() { kind } else { message };
        Self::new("usage", Exit::Usage, message).hint(tip.unwrap_or("see `switchboard --help`"))
    }

    /// A message that a rule against storms or costs has stopped; what became of it, in words.
    pub(crate) fn stopped(stop: &Stop, what: &str) -> Self {
        let or =
            if stop.yields_to_a_word() { "; a word of theirs in the thread lifts the limit" } else { "" };
        Self::new("stopped", Exit::NotAllowed, stop.to_string())
            .hint(format!("{what}; a person lets it go on with `switchboard resume ID`{or}"))
    }

    pub(crate) fn temporary(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(code, Exit::Temporary, message)
    }
}

impl From<WorkspaceError> for Failure {
    fn from(error: WorkspaceError) -> Self {
        let message = chain(&error);
        match error {
            WorkspaceError::Hub(error) => error.into(),
            WorkspaceError::Address(error) => error.into(),
            WorkspaceError::Role(error) => error.into(),
            WorkspaceError::Workflow(error) => error.into(),
            WorkspaceError::TeamMail(TeamMailError::NoneWithRole { .. }) => {
                Self::new("no_member_with_role", Exit::NotFound, message)
                    .hint("`switchboard agents` lists who has which role")
            }
            WorkspaceError::TeamMail(TeamMailError::NoneAccepted { .. }) => {
                Self::new("none_accepted", Exit::Failed, message)
            }
            WorkspaceError::NotAWorkspace { .. } => {
                Self::new("no_workspace", Exit::NotFound, message).hint("make one with `switchboard init`")
            }
            WorkspaceError::Moved { .. } => Self::new("workspace_moved", Exit::Failed, message)
                .hint("start again in the folder where the workspace is now"),
            WorkspaceError::DamagedState { .. } => Self::new("damaged_state", Exit::Failed, message)
                .hint("`switchboard doctor --fix` moves the damaged file aside and writes a new one"),
            WorkspaceError::DamagedBridge { .. } => Self::new("damaged_bridge", Exit::Failed, message)
                .hint("move .switchboard/bridge.json aside; its host makes a new one"),
            WorkspaceError::Field { .. } => Self::new("bad_field", Exit::Usage, message),
            WorkspaceError::TerminalTaken { .. } => Self::new("already_running", Exit::Temporary, message)
                .hint("use the terminal that runs, end it first, or choose another name"),
            WorkspaceError::Lock(_) => Self::temporary("locked", message)
                .hint("another program is changing state.json; try again, or look with `switchboard doctor`"),
            WorkspaceError::LockLost => Self::temporary("locked", message).hint("try again"),
            WorkspaceError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            WorkspaceError::File(_) => Self::new("file", Exit::Failed, message),
            WorkspaceError::Closed => Self::temporary("closed", message),
        }
    }
}

impl From<ChannelError> for Failure {
    fn from(error: ChannelError) -> Self {
        let message = chain(&error);
        match error {
            ChannelError::Hub(error) => error.into(),
            ChannelError::Root { .. } => Self::new("no_channels", Exit::NotFound, message)
                .hint("make the folder, mount it, or correct channels.root in your settings"),
            ChannelError::UnknownChannel { near, .. } => {
                let failure = Self::new("unknown_channel", Exit::NotFound, message);
                failure.hint(if near.is_empty() {
                    "`switchboard channel list` lists the channels; the first post makes one".to_owned()
                } else {
                    format!("did you mean {}?", or_list(&near))
                })
            }
            ChannelError::UnknownMessage { .. } => Self::new("unknown_message", Exit::NotFound, message)
                .hint("`switchboard channel read` lists messages with their ids"),
            ChannelError::Ahead { .. } => Self::new("cursor_ahead", Exit::Failed, message)
                .hint("go on from the newest message, or start again without --since"),
            ChannelError::Expired { .. } => Self::new("cursor_expired", Exit::Failed, message)
                .hint("start again without --since; `switchboard thread ID` shows what the journal has"),
            ChannelError::Field { .. } | ChannelError::Malformed(_) => {
                Self::new("bad_field", Exit::Usage, message)
            }
            ChannelError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            ChannelError::File(_) => Self::new("file", Exit::Failed, message),
            ChannelError::Awaited { .. } => Self::temporary("awaited", message),
            ChannelError::Closed => Self::temporary("closed", message),
        }
    }
}

impl From<RouterError> for Failure {
    fn from(error: RouterError) -> Self {
        let message = chain(&error);
        match error {
            RouterError::Hub(error) => error.into(),
            RouterError::NotRunning => Self::new("no_router", Exit::Temporary, message)
                .hint("start `switchboard serve` in this workspace, in another terminal"),
            RouterError::Rejected { code, field, reason } => refusal(&code, field.as_deref(), &reason),
            RouterError::Address { .. } | RouterError::NotLoopback { .. } => {
                Self::new("bad_address", Exit::Usage, message)
            }
            RouterError::Listen { source, .. } => {
                let hint = match source.kind() {
                    std::io::ErrorKind::NotFound => "make the folder of the socket first",
                    _ => "choose another port, or a shorter path for a socket",
                };
                Self::new("cannot_listen", Exit::Failed, message).hint(hint)
            }
            RouterError::HungUp { .. } | RouterError::Connection(_) => {
                Self::temporary("router_gone", message).hint("look whether `switchboard serve` still runs")
            }
            RouterError::File(_) | RouterError::Log { .. } => Self::new("file", Exit::Failed, message),
        }
    }
}

impl From<SuiteError> for Failure {
    fn from(error: SuiteError) -> Self {
        let message = chain(&error);
        match error {
            SuiteError::NoWorkspace { .. } => {
                Self::new("no_workspace", Exit::NotFound, message).hint("make one with `switchboard init`")
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
                Self::new("no_settings", Exit::NotFound, message).hint("say where they are with --file PATH")
            }
            SuiteError::NoBackup { .. } => Self::new("no_backup", Exit::NotFound, message)
                .hint("only what `switchboard init` imported can be taken back"),
            SuiteError::Edited { .. } => Self::new("edited", Exit::NotAllowed, message)
                .hint("`switchboard suite revert --force` puts the old file back and drops the edits"),
            SuiteError::ChangedMeanwhile { .. } => {
                Self::temporary("changed", message).hint("run `switchboard init` again")
            }
            SuiteError::Disabled { name } => Self::new("disabled", Exit::NotFound, message)
                .hint(format!("take suites.{name}.enabled out of switchboard.config.json")),
            SuiteError::Lock(_) => Self::temporary("locked", message).hint("try again"),
            SuiteError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            SuiteError::File(_) => Self::new("file", Exit::Failed, message),
        }
    }
}

impl From<WrapperError> for Failure {
    fn from(error: WrapperError) -> Self {
        let message = chain(&error);
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
        let message = chain(&error);
        match error {
            NatsError::Hub(error) => error.into(),
            NatsError::File(_) => Self::new("file", Exit::Failed, message),
            NatsError::Credentials { .. } => Self::new("bad_credentials", Exit::NotAllowed, message)
                .hint("correct the path in the section `nats` of your settings, or the file"),
            NatsError::ForeignStream { .. } | NatsError::NameTaken { .. } => {
                Self::new("nats", Exit::Failed, message)
            }
            NatsError::Unreachable { .. } | NatsError::Server { .. } | NatsError::Lost => {
                Self::temporary("nats", message)
                    .hint("what is for other hubs waits; `switchboard doctor` says more")
            }
        }
    }
}

/// What to put right in the settings, where that is what is wrong, and not the other end of a call.
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
        Error::BadAllowed { .. } => Some("put swarm.allow right in your settings"),
        Error::File(_)
        | Error::NoFile { .. }
        | Error::BadPem { .. }
        | Error::OpenKey { .. }
        | Error::OtherKey { .. }
        | Error::Unusable { .. }
        | Error::NoCa
        | Error::Rcgen(_) => Some("put swarm.cert, swarm.key and swarm.ca right in your settings"),
        _ => None,
    }
}

impl From<SwarmError> for Failure {
    fn from(error: SwarmError) -> Self {
        let (message, temporary) = (chain(&error), error.is_temporary());
        let or = |near: &[String], otherwise: &str| {
            if near.is_empty() { otherwise.to_owned() } else { format!("did you mean {}?", or_list(near)) }
        };
        match error {
            SwarmError::Hub(error) => error.into(),
            SwarmError::NoIdentity { .. } => Self::new("no_identity", Exit::NotFound, message)
                .hint("make one with `switchboard swarm init --agent NAME --endpoint https://HOST/swarm`"),
            SwarmError::WhichIdentity { .. } => {
                Self::new("which_identity", Exit::Usage, message).hint("say which with --agent NAME")
            }
            SwarmError::UnknownSwarm { near, .. } => Self::new("unknown_swarm", Exit::NotFound, message)
                .hint(or(&near, "`switchboard swarm list` lists them")),
            SwarmError::NotAMember { near, .. } => Self::new("not_a_member", Exit::NotFound, message)
                .hint(or(&near, "`switchboard swarm members` lists them")),
            SwarmError::WhichSwarm { swarms } => match swarms.as_slice() {
                [] => Self::new("unknown_swarm", Exit::NotFound, message)
                    .hint("`switchboard swarm list --all` lists also those that are over"),
                _ => Self::new("which_swarm", Exit::Usage, message).hint("name one of them"),
            },
            SwarmError::NotPending { .. } => {
                Self::new("not_found", Exit::NotFound, message).hint("`switchboard swarm list` says who waits")
            }
            SwarmError::UnknownInvite { .. } => {
                Self::new("not_found", Exit::NotFound, message).hint("`switchboard swarm invites` lists them")
            }
            SwarmError::NotHandingOver { .. } => Self::new("not_found", Exit::NotFound, message),
            SwarmError::NotMaster { .. } | SwarmError::MasterStays { .. } | SwarmError::NotActive { .. } => {
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
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            SwarmError::File(_) | SwarmError::Key(_) | SwarmError::State(_) | SwarmError::Damaged { .. } => {
                Self::new("file", Exit::Failed, message)
            }
        }
    }
}

impl From<McpError> for Failure {
    fn from(error: McpError) -> Self {
        let message = chain(&error);
        match error {
            McpError::Bind { .. } | McpError::NoFreePort { .. } => {
                Self::new("port_taken", Exit::Failed, message)
                    .hint("`switchboard serve --port 0` takes any free port")
            }
            McpError::BadToken { .. } => Self::new("bad_token", Exit::Failed, message)
                .hint("start without --keep-token to have a new one made"),
            McpError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            _ => Self::new("mcp", Exit::Failed, message),
        }
    }
}

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        let temporary = error.is_temporary();
        let damage = error.is_damage();
        let message = chain(&error);
        match error {
            HubError::Unresolved(error) => error.into(),
            HubError::Conflict { .. } => Self::new("conflict", Exit::Failed, message)
                .hint("the first message stays; send yours under a new id"),
            HubError::BodyTooLarge { .. } | HubError::MetadataTooLarge { .. } => {
                Self::new("too_large", Exit::Failed, message)
                    .hint("put the content into a file of the workspace and send its path")
            }
            HubError::ClaimHeld { task, own: Some(fence), .. } => Self::temporary("claim_held", message)
                .hint(format!("it is yours: `switchboard renew \"{task}\" {fence}` keeps it for longer")),
            HubError::ClaimHeld { .. } => Self::temporary("claim_held", message)
                .hint("take another task, or ask its holder; `switchboard claim` lists who has which"),
            HubError::StaleClaim { .. } => Self::new("stale_claim", Exit::NotAllowed, message)
                .hint("nothing was done; `switchboard claim TASK` takes the task on again, where it is free"),
            HubError::NoLink { .. } => Self::temporary("no_link", message).hint(
                "run `switchboard serve` with `nats.url` set; `switchboard doctor` says how the link stands",
            ),
            HubError::BadClaim => Self::new("bad_claim", Exit::Usage, message),
            HubError::FilesReserved { .. } => Self::temporary("reserved", message).hint(
                "work at something else, or ask its holder; `switchboard reserve` lists who works at which",
            ),
            HubError::UnknownMessage { .. } => Self::new("unknown_message", Exit::NotFound, message)
                .hint("`switchboard tail` lists recent messages with their ids"),
            HubError::NotTheRecipient { .. } => Self::new("not_the_recipient", Exit::NotAllowed, message)
                .hint("say who you are with --from NAME or SWITCHBOARD_AGENT_NAME"),
            HubError::ReservedName { .. } => {
                Self::new("reserved_name", Exit::NotAllowed, message).hint("choose another name")
            }
            HubError::NameTaken { .. } => Self::new("name_taken", Exit::Failed, message)
                .hint("choose another name; `switchboard agents` lists those in use"),
            HubError::CompositeTeam { .. } => Self::new("composite_team", Exit::Failed, message)
                .hint("make a team without --composite for several members"),
            HubError::SeveralMembers { .. } => Self::new("several_members", Exit::Failed, message)
                .hint("take all but one out with `switchboard team remove`"),
            HubError::CursorExpired { .. } => {
                Self::new("cursor_expired", Exit::Failed, message).hint("start again without --since")
            }
            HubError::ServiceTaken { .. } => Self::new("already_running", Exit::Temporary, message)
                .hint("use the one that runs, or stop it first"),
            HubError::NewerSchema { .. } => Self::new("newer_schema", Exit::Failed, message)
                .hint("update switchboard, or use the version that wrote it"),
            HubError::OlderSchema { .. } => Self::temporary("older_schema", message)
                .hint("stop every switchboard process of this workspace; the next one upgrades it"),
            HubError::DamagedInUse { .. } => Self::temporary("damaged", message)
                .hint("stop every switchboard process of this workspace; the next one repairs it"),
            HubError::DamagedMessage { .. } => Self::new("damaged_message", Exit::Failed, message)
                .hint("`switchboard doctor --fix` restores it where it can"),
            HubError::NoSpace { .. } => {
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            HubError::Unsure { .. } => Self::temporary("unsure", message)
                .hint("`switchboard tail` tells whether it was sent; look there before sending it again"),
            HubError::Store { .. } if damage => Self::temporary("damaged", message)
                .hint("run the command again: the damaged journal is moved aside and rebuilt"),
            HubError::Store { .. } if temporary => Self::temporary("store", message).hint("try again"),
            HubError::Store { .. } => {
                Self::new("store", Exit::Failed, message).hint("`switchboard doctor` says more")
            }
            HubError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("make room on the disk and try again")
            }
            HubError::File(FileError::NotAFile { .. } | FileError::NotADirectory { .. }) => {
                Self::new("file", Exit::Failed, message).hint("move what is there out of the way")
            }
            HubError::File(_) => Self::new("file", Exit::Failed, message),
            HubError::Closed => Self::temporary("closed", message),
        }
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        let message = error.to_string();
        match error {
            ResolveError::UnknownAgent { agent, near, known } => {
                let failure = Self::new("unknown_recipient", Exit::NotFound, message);
                failure.hint(match (near.is_empty(), known.is_empty()) {
                    (false, _) => format!("did you mean {}?", or_list(&near)),
                    (true, false) => format!("known agents: {}", some_of(&known)),
                    (true, true) => format!("register it with `switchboard agents register \"{agent}\"`"),
                })
            }
            ResolveError::Retired { .. } => Self::new("retired", Exit::NotFound, message).hint(
                "`switchboard agents` lists who is there; `links.forwards` in your settings sends its mail on",
            ),
            ResolveError::UnknownByLink { near, .. } => {
                let mean = if near.is_empty() {
                    String::new()
                } else {
                    format!("did you mean {}? ", or_list(&near))
                };
                Self::new("unknown_agent", Exit::NotFound, message)
                    .hint(format!("{mean}put it right in ~/.config/switchboard/config.json"))
            }
            ResolveError::UnknownTeam { team, near } => {
                let failure = Self::new("unknown_team", Exit::NotFound, message);
                failure.hint(if near.is_empty() {
                    format!("make it with `switchboard team create \"{team}\"`")
                } else {
                    format!("did you mean {}?", or_list(&near))
                })
            }
            ResolveError::UnknownNode { .. } => Self::new("unknown_node", Exit::NotFound, message)
                .hint("`switchboard worker list` shows the jobs and how they are"),
            ResolveError::NoRoute { .. } => Self::new("no_route", Exit::Failed, message),
            ResolveError::EmptyGroup { group } => {
                Self::new("empty_group", Exit::NotFound, message).hint(match group {
                    GroupId::Channel(_) => {
                        "`switchboard channel list` lists the channels; the first post makes one"
                    }
                    GroupId::Job(_) => "`switchboard worker list` shows the jobs and how they are",
                    _ => "`switchboard agents` lists who is registered",
                })
            }
        }
    }
}

impl From<RoleError> for Failure {
    fn from(error: RoleError) -> Self {
        let message = error.to_string();
        match error {
            RoleError::Unknown { .. } => Self::new("unknown_role", Exit::NotFound, message),
            RoleError::Unfilled { .. } => Self::new("unfilled_role", Exit::NotFound, message)
                .hint("`switchboard agents role NAME ROLE` gives an agent a role"),
            RoleError::Ambiguous { .. } => Self::new("ambiguous_recipient", Exit::Failed, message),
        }
    }
}

/// The messages are written for models that use the tools; the hints say the same for the command line.
impl From<WorkflowError> for Failure {
    fn from(error: WorkflowError) -> Self {
        let message = error.to_string();
        match error {
            WorkflowError::Unknown { .. } | WorkflowError::StaleRuntime { .. } => {
                Self::new("unknown_workflow", Exit::NotFound, message)
                    .hint("`switchboard workflow list` lists those that can be started")
            }
            WorkflowError::Locked { .. } => Self::new("workflow_lock", Exit::NotAllowed, message)
                .hint("`switchboard workflow stop` ends it; --force replaces it, --suspend lets it wait"),
            WorkflowError::NothingToStop { .. } | WorkflowError::NotActive { .. } => {
                Self::new("no_active_workflow", Exit::NotFound, message)
                    .hint("`switchboard workflow state` shows what is active")
            }
            WorkflowError::MissingArtifacts { .. }
            | WorkflowError::EvidenceRequired { .. }
            | WorkflowError::UnmatchedArtifacts { .. } => {
                Self::new("missing_artifacts", Exit::Failed, message).hint("name files with --artifact PATH")
            }
            WorkflowError::OutOfOrder { .. } => Self::new("out_of_order", Exit::NotAllowed, message)
                .hint("--skip-reason TEXT leaves phases out"),
            WorkflowError::ToolProhibited { .. } => Self::new("tool_prohibited", Exit::NotAllowed, message),
            _ => Self::new("workflow", Exit::Failed, message),
        }
    }
}

impl From<WorkTreeError> for Failure {
    fn from(error: WorkTreeError) -> Self {
        let message = chain(&error);
        match error {
            WorkTreeError::Folder { .. } => Self::new("file", Exit::Failed, message),
            WorkTreeError::Outside { .. } => Self::new("outside", Exit::Usage, message)
                .hint("only files of the repository, or of the workspace, can be reserved"),
            WorkTreeError::Pattern(_) | WorkTreeError::Nothing | WorkTreeError::TooMany { .. } => {
                Self::new("bad_pattern", Exit::Usage, message)
                    .hint("a pattern is src/a.rs, src/**, '*.md', src/{a,b}.rs or docs/")
            }
        }
    }
}

impl From<TaskNameError> for Failure {
    fn from(error: TaskNameError) -> Self {
        Self::new("bad_task", Exit::Usage, error.to_string())
    }
}

impl From<AddressError> for Failure {
    fn from(error: AddressError) -> Self {
        Self::new("bad_address", Exit::Usage, error.to_string())
            .hint("an address is codex, team:backend, #general, alice@research, job:7/0 or all")
    }
}

impl From<NameError> for Failure {
    fn from(error: NameError) -> Self {
        Self::new("bad_name", Exit::Usage, error.to_string())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new("failed", Exit::Failed, format!("{error:#}"))
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

fn or_list(words: &[String]) -> String {
    words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" or ")
}

/// A long list is cut: the reader wants a name, not all of them.
fn some_of(words: &[String]) -> String {
    let shown = words.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
    if words.len() > 12 { format!("{shown} and {} more", words.len() - 12) } else { shown }
}
