//! Where messages begin and where they end.

/// How a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// `switchboard send`.
    CommandLine,
    /// The tool of a session over stdio.
    Session,
    /// `switchboard channel post`.
    Channel,
    /// The tool of a session with another hub.
    Hub,
    /// The tool of a session with the hub of another owner.
    Swarm,
}

/// Where it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    /// As a file in a mailbox.
    Mailbox,
    /// By a session that waits.
    Session,
    /// As a file in a channel.
    Channel,
    /// By a worker.
    Worker,
    /// By a session that waits at another hub.
    Hub,
    /// By a session that waits at the hub of another owner.
    Swarm,
}

pub(super) const FROM: [From; 5] = [From::CommandLine, From::Session, From::Channel, From::Hub, From::Swarm];

pub(super) const INTO: [Into; 6] =
    [Into::Mailbox, Into::Session, Into::Channel, Into::Worker, Into::Hub, Into::Swarm];

impl From {
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

impl Into {
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

    /// How it is written to from each hub. From another owner's by a member whose mail is forwarded, where it is none.
    pub(super) fn address(self, from: From) -> String {
        let agent = match self {
            Self::Mailbox => "codex",
            Self::Session => "claude",
            Self::Channel => "dana",
            Self::Worker => "parrot",
            Self::Hub => "qc-1",
            Self::Swarm => "bob",
        };
        match (from, self) {
            (From::Swarm, Self::Mailbox | Self::Session) => format!("{agent}@research"),
            (From::Swarm, _) => format!("to-{agent}@research"),
            (From::Hub, Self::Swarm) => "bobs-desk@lab".to_owned(),
            (From::Hub, _) => format!("{agent}@lab"),
            (_, Self::Swarm) => "bob@research".to_owned(),
            (_, Self::Hub) => "qc-1@office".to_owned(),
            _ => agent.to_owned(),
        }
    }
}
