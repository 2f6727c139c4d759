//! References in a message (§4.3).

use serde::{Deserialize, Serialize};

/// A reference to something outside the swarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Type of the target.
    #[serde(rename = "type")]
    pub kind: ReferenceType,
    /// The repository, `owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// Number of an issue or a pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Commit hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha: Option<String>,
    /// URL of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The event on the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
}

/// Type of a reference's target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceType {
    /// A repository.
    GithubRepo,
    /// An issue.
    GithubIssue,
    /// A pull request.
    GithubPr,
    /// A commit.
    GithubCommit,
    /// Any other URL.
    Url,
}

/// An event on the target of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// An agent has claimed the target.
    Claimed,
    /// The target is completed.
    Completed,
    /// The target is blocked.
    Blocked,
    /// The target is no longer blocked.
    Unblocked,
    /// The target was assigned.
    Assigned,
    /// The target is only mentioned.
    Mention,
    /// A review of the target is requested.
    ReviewRequested,
}

/// Reason why a reference is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a reference of type {} {problem}", .kind.as_str())]
pub struct ReferenceError {
    /// Type of the invalid reference.
    pub kind: ReferenceType,
    /// Why the reference is invalid.
    pub problem: &'static str,
}

impl ReferenceType {
    /// Returns the wire form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GithubRepo => "github_repo",
            Self::GithubIssue => "github_issue",
            Self::GithubPr => "github_pr",
            Self::GithubCommit => "github_commit",
            Self::Url => "url",
        }
    }
}

impl Reference {
    /// Checks the fields that the type requires, and their format.
    pub fn check(&self) -> Result<(), ReferenceError> {
        let fail = |problem| Err(ReferenceError { kind: self.kind, problem });
        if self.kind == ReferenceType::Url {
            return match &self.url {
                None => fail("needs 'url'"),
                Some(url)
                    if !(url.starts_with("https://") || url.starts_with("http://")) || url.len() > 2048 =>
                {
                    fail("needs a 'url' that begins with https:// or http:// and has at most 2048 characters")
                }
                Some(_) => Ok(()),
            };
        }
        match &self.repo {
            None => return fail("needs 'repo'"),
            Some(repo) if !is_repo(repo) => return fail("needs 'repo' as owner/name"),
            Some(_) => {}
        }
        match self.kind {
            ReferenceType::GithubIssue | ReferenceType::GithubPr if self.number.is_none_or(|n| n == 0) => {
                fail("needs a 'number' from 1")
            }
            ReferenceType::GithubCommit if !self.sha.as_deref().is_some_and(is_sha) => {
                fail("needs 'sha', 7 to 64 hexadecimal digits")
            }
            _ => Ok(()),
        }
    }
}

fn is_repo(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    let is_part = |part: &str| (1..=100).contains(&part.len()) && part.bytes().all(legal);
    text.split_once('/').is_some_and(|(owner, name)| is_part(owner) && is_part(name))
}

fn is_sha(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}
