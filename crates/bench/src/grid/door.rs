//! Doors where messages enter and leave.

/// Door through which a message is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum From {
    /// `switchboard send`.
    CommandLine,
    /// Tool call of a session over stdio.
    Session,
    /// `switchboard channel post`.
    Channel,
    /// Tool call of a session on another hub.
    Hub,
    /// Tool call of a session on another owner's hub.
    Swarm,
}

/// Door at which it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Into {
    /// File in a mailbox.
    Mailbox,
    /// Waiting session.
    Session,
    /// File in a channel.
    Channel,
    /// Worker.
    Worker,
    /// Waiting session on another hub.
    Hub,
    /// Waiting session on another owner's hub.
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

    /// Returns the reader's address as seen from each hub. A reader that is no member of the swarm is reached
    /// from another owner's hub by a member with a forwarding alias.
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
