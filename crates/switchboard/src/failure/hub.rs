//! Conversion of errors of the hub, and of invalid names, into failures.

use switchboard_core::{AddressError, GroupId, NameError, ResolveError, TaskNameError, error_chain};
use switchboard_hub::{HubError, WorkTreeError};
use switchboard_sys::files::FileError;

use super::{Exit, Failure, or_list};

impl From<HubError> for Failure {
    fn from(error: HubError) -> Self {
        let temporary = error.is_temporary();
        let damage = error.is_damage();
        let message = error_chain(&error);
        match error {
            HubError::Unresolved(error) => error.into(),
            HubError::Conflict { .. } => Self::new("conflict", Exit::Failed, message)
                .hint("the first message is kept; send yours under a new id"),
            HubError::BodyTooLarge { .. } | HubError::MetadataTooLarge { .. } => {
                Self::new("too_large", Exit::Failed, message)
                    .hint("put the content into a file of the workspace and send its path")
            }
            HubError::ClaimHeld { task, own: Some(fence), .. } => Self::temporary("claim_held", message)
                .hint(format!("it is yours: `switchboard renew \"{task}\" {fence}` extends it")),
            HubError::ClaimHeld { .. } => Self::temporary("claim_held", message)
                .hint("choose another task, or ask its holder; `switchboard claim` lists the claims"),
            HubError::StaleClaim { .. } => Self::new("stale_claim", Exit::NotAllowed, message)
                .hint("nothing was changed; `switchboard claim TASK` claims the task again if it is free"),
            HubError::NoLink { .. } => Self::temporary("no_link", message).hint(
                "run `switchboard serve` with `nats.url` set; `switchboard doctor` shows the state of the link",
            ),
            HubError::LeaseTooLong { .. } => Self::new("lease_too_long", Exit::Usage, message)
                .hint("give --for 24h or less, and renew or reserve again before it ends"),
            HubError::BadClaim => Self::new("bad_claim", Exit::Usage, message),
            HubError::FilesReserved { .. } => Self::temporary("reserved", message).hint(
                "work on other files, or ask its holder; `switchboard reserve` lists the reservations",
            ),
            HubError::UnknownMessage { .. } => Self::new("unknown_message", Exit::NotFound, message)
                .hint("`switchboard tail` lists recent messages with their ids"),
            HubError::NotTheRecipient { .. } => Self::new("not_the_recipient", Exit::NotAllowed, message)
                .hint("name yourself with --from NAME or SWITCHBOARD_AGENT_NAME"),
            HubError::ReservedName { .. } => {
                Self::new("reserved_name", Exit::NotAllowed, message).hint("choose another name")
            }
            HubError::NameTaken { .. } => Self::new("name_taken", Exit::Failed, message)
                .hint("choose another name; `switchboard agents` lists those in use"),
            HubError::CompositeTeam { .. } => Self::new("composite_team", Exit::Failed, message)
                .hint("create a team without --composite for several members"),
            HubError::SeveralMembers { .. } => Self::new("several_members", Exit::Failed, message)
                .hint("remove all but one with `switchboard team remove`"),
            HubError::CursorExpired { .. } => {
                Self::new("cursor_expired", Exit::Failed, message).hint("omit --since")
            }
            HubError::ServiceTaken { .. } => Self::new("already_running", Exit::Temporary, message)
                .hint("use the running one, or stop it first"),
            HubError::NewerSchema { .. } => Self::new("newer_schema", Exit::Failed, message)
                .hint("update switchboard, or use the version that wrote it"),
            HubError::OlderSchema { .. } => Self::temporary("older_schema", message)
                .hint("stop every switchboard process of this workspace; the next one upgrades it"),
            HubError::DamagedInUse { .. } => Self::temporary("damaged", message)
                .hint("stop every switchboard process of this workspace; the next one repairs it"),
            HubError::ForeignInUse { .. } => Self::temporary("foreign_database", message)
                .hint("stop every switchboard process of this workspace and try again"),
            HubError::ForeignSideFile { .. } | HubError::SideFileInUse { .. } => {
                Self::temporary("foreign_side_file", message).hint(
                    "stop every switchboard process of this workspace; the next one moves the file aside and continues",
                )
            }
            HubError::ForeignDatabase { .. } => Self::new("foreign_database", Exit::NotAllowed, message)
                .hint("`switchboard adopt` shows whose messages it holds"),
            HubError::NoForeignDatabase { .. } => Self::new("nothing_to_adopt", Exit::NotFound, message)
                .hint("`switchboard doctor` names the existing ones"),
            HubError::OthersDatabase { .. } => Self::new("others_database", Exit::NotAllowed, message)
                .hint("run this as that user"),
            HubError::Key { .. } => Self::new("hub_key", Exit::Failed, message)
                .hint("make it your file with mode 0600 in a writable folder; XDG_CONFIG_HOME sets the folder"),
            HubError::DamagedMessage { .. } => Self::new("damaged_message", Exit::Failed, message)
                .hint("`switchboard doctor --fix` restores it if possible"),
            HubError::NoSpace { .. } => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            HubError::ReadOnly { .. } => Self::temporary("read_only", message)
                .hint("make the disk and the folder writable and try again; `switchboard doctor` names them"),
            HubError::StoreDeleted { .. } => Self::new("store_deleted", Exit::Failed, message)
                .hint("`switchboard init` creates a new workspace; docs/workspace.md says how to restore a backup"),
            HubError::Rebuilding => Self::temporary("rebuilding", message).hint("try again in a second"),
            HubError::OutcomeUnknown { .. } => Self::temporary("unsure", message)
                .hint("check with `switchboard tail` whether it was sent before you send it again"),
            HubError::Store { .. } if damage => Self::temporary("damaged", message)
                .hint("run the command again: the damaged journal is moved aside and rebuilt"),
            HubError::Store { .. } if temporary => Self::temporary("store", message).hint("try again"),
            HubError::Store { .. } => {
                Self::new("store", Exit::Failed, message).hint("`switchboard doctor` shows details")
            }
            HubError::File(error) if error.is_no_space() => {
                Self::temporary("no_space", message).hint("free disk space and try again")
            }
            HubError::File(error) if error.is_read_only() => read_only(message),
            HubError::File(FileError::NotAFile { .. } | FileError::NotADirectory { .. }) => {
                Self::new("file", Exit::Failed, message).hint("move the file or folder at this path aside")
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
                "`switchboard agents` lists the agents; `links.forwards` in your settings forwards its mail",
            ),
            ResolveError::UnknownRuleTarget { near, .. } => {
                let mean = if near.is_empty() {
                    String::new()
                } else {
                    format!("did you mean {}? ", or_list(&near))
                };
                Self::new("unknown_agent", Exit::NotFound, message)
                    .hint(format!("{mean}correct it in ~/.config/switchboard/config.json"))
            }
            ResolveError::UnknownRealm { .. } => Self::new("unknown_realm", Exit::NotFound, message).hint(
                "`switchboard swarm list` names your swarms; correct it in ~/.config/switchboard/config.json",
            ),
            ResolveError::UnknownTeam { team, near } => {
                let failure = Self::new("unknown_team", Exit::NotFound, message);
                failure.hint(if near.is_empty() {
                    format!("create it with `switchboard team create \"{team}\"`")
                } else {
                    format!("did you mean {}?", or_list(&near))
                })
            }
            ResolveError::UnknownNode { .. } => Self::new("unknown_node", Exit::NotFound, message)
                .hint("`switchboard worker list` shows the jobs and their states"),
            ResolveError::NoRoute { .. } => Self::new("no_route", Exit::Failed, message),
            ResolveError::EmptyGroup { group } => {
                Self::new("empty_group", Exit::NotFound, message).hint(match group {
                    GroupId::Channel(_) => {
                        "`switchboard channel list` lists the channels; the first post creates one"
                    }
                    GroupId::Job(_) => "`switchboard worker list` shows the jobs and their states",
                    _ => "`switchboard agents` lists the registered agents",
                })
            }
        }
    }
}

impl From<WorkTreeError> for Failure {
    fn from(error: WorkTreeError) -> Self {
        let message = error_chain(&error);
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

/// Builds the failure for a file that cannot be written, because of the disk or its permissions.
pub(super) fn read_only(message: String) -> Failure {
    Failure::temporary("read_only", message)
        .hint("make the disk and the folder writable and try again; `switchboard doctor` names them")
}

/// Shortens a long list: the reader needs an example, not all entries.
fn some_of(words: &[String]) -> String {
    let shown = words.iter().take(12).cloned().collect::<Vec<_>>().join(", ");
    if words.len() > 12 { format!("{shown} and {} more", words.len() - 12) } else { shown }
}
