//! Doors at which messages enter and leave the system.

/// Door through which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// `switchboard send`.
    CommandLine,
    /// Tool call in a session over stdio.
    Session,
    /// `switchboard channel post`.
    Channel,
    /// Tool call in a session on another hub.
    Hub,
    /// Tool call in a session on another owner's hub.
    Swarm,
}

/// Door at which a message is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// File in a mailbox.
    Mailbox,
    /// Session that waits for messages.
    Session,
    /// File in a channel.
    Channel,
    /// Worker of the router.
    Worker,
    /// Waiting session on another hub of the same owner.
    Hub,
    /// Waiting session on another owner's hub.
    Swarm,
}

pub(super) const SOURCES: [Source; 5] =
    [Source::CommandLine, Source::Session, Source::Channel, Source::Hub, Source::Swarm];

pub(super) const TARGETS: [Target; 6] =
    [Target::Mailbox, Target::Session, Target::Channel, Target::Worker, Target::Hub, Target::Swarm];

impl Source {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CommandLine => "command_line",
            Self::Session => "session",
            Self::Channel => "channel",
            Self::Hub => "hub",
            Self::Swarm => "swarm",
        }
    }
}

impl Target {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Mailbox => "mailbox",
            Self::Session => "session",
            Self::Channel => "channel",
            Self::Worker => "worker",
            Self::Hub => "hub",
            Self::Swarm => "swarm",
        }
    }

    /// Returns the reader's address as seen from the sender's hub.
    ///
    /// From another owner's hub, a reader that is not a member of the swarm is reached through a member with a
    /// forwarding alias.
    pub(super) fn address(self, from: Source) -> String {
        let agent = match self {
            Self::Mailbox => "codex",
            Self::Session => "claude",
            Self::Channel => "dana",
            Self::Worker => "parrot",
            Self::Hub => "qc-1",
            Self::Swarm => "bob",
        };
        match (from, self) {
            (Source::Swarm, Self::Mailbox | Self::Session) => format!("{agent}@research"),
            (Source::Swarm, _) => format!("to-{agent}@research"),
            (Source::Hub, Self::Swarm) => "bobs-desk@lab".to_owned(),
            (Source::Hub, _) => format!("{agent}@lab"),
            (_, Self::Swarm) => "bob@research".to_owned(),
            (_, Self::Hub) => "qc-1@office".to_owned(),
            _ => agent.to_owned(),
        }
    }
}
