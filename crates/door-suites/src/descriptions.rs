//! What a model is told of a child.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use switchboard_sys::files::Dir;

use crate::config::Config;
use crate::discovery::Issue;
use crate::paths::SuitePaths;
use crate::spec::{ChildSpec, Launch};

/// The workspace's own descriptions, in `.switchboard/`.
pub const DESCRIPTIONS_NAME: &str = "mcp-descriptions.json";

/// Larger than any file of descriptions that a person writes.
const LIMIT: u64 = 1 << 20;

/// Most characters that are taken over from what a child says of itself.
const INSTRUCTIONS_LIMIT: usize = 120;

/// The workspace's own descriptions: `mcp-descriptions.json`, as the suite proxy's architecture has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct Descriptions {
    /// By the child's name.
    pub mcps: BTreeMap<String, Description>,
}

/// What is said of one child.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct Description {
    /// What a model is told that may call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchboard: Option<String>,
    /// What a model is told that works for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claude: Option<String>,
}

impl Descriptions {
    /// Reads the file of a workspace; nothing where there is none, and a problem where it is no such file.
    pub fn load(paths: &SuitePaths) -> Result<Self, Issue> {
        let file = paths.workspace.join(".switchboard").join(DESCRIPTIONS_NAME);
        let problem = |message: String| Issue { file: file.clone(), message, child: None };
        let folder = Dir::open_root(&paths.workspace).and_then(|root| root.subdir(".switchboard"));
        let Some(folder) = folder.map_err(|error| problem(error.to_string()))? else {
            return Ok(Self::default());
        };
        match folder.read(DESCRIPTIONS_NAME, LIMIT).map_err(|error| problem(error.to_string()))? {
            Some(found) => serde_json::from_slice(&found.bytes)
                .map_err(|error| problem(format!("is not a file of descriptions: {error}"))),
            None => Ok(Self::default()),
        }
    }

    /// What is said of a child; names that differ only in case are the same name.
    pub fn of(&self, child: &str) -> Option<&Description> {
        self.mcps
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(child))
            .map(|(_, description)| description)
    }
}

/// What a model is told of a child: what its owner wrote, else what we know of it, else what it says of itself.
pub fn suite_description(
    spec: &ChildSpec,
    config: &Config,
    descriptions: &Descriptions,
    cached_instructions: Option<&str>,
) -> String {
    owner_description(spec, config, descriptions)
        .or_else(|| said(built_in(spec)))
        .or_else(|| said(cached_instructions).map(|text| first_sentence(&text)))
        .unwrap_or_else(|| format!("{} tools", spec.name))
}

/// What the owner of a child wrote of it. The `description` of its file counts only where nothing is known of the child:
/// most such files are copied from elsewhere.
pub(crate) fn owner_description(
    spec: &ChildSpec,
    config: &Config,
    descriptions: &Descriptions,
) -> Option<String> {
    said(spec.switchboard_description.as_deref())
        .or_else(|| said(config.suite(&spec.name).and_then(|suite| suite.description.as_deref())))
        .or_else(|| said(descriptions.of(&spec.name).and_then(|of| of.switchboard.as_deref())))
        .or_else(|| said(spec.description.as_deref()).filter(|_| built_in(spec).is_none()))
}

fn said(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[derive(Deserialize)]
struct Known {
    /// Names of packages, programs or hosts by which the server is known.
    known_as: Vec<String>,
    text: String,
}

static LIBRARY: LazyLock<Vec<Known>> =
    LazyLock::new(|| serde_json::from_str(include_str!("descriptions.json")).unwrap_or_default());

/// What is known of a well-known server, told by its package, its program or its host.
fn built_in(spec: &ChildSpec) -> Option<&'static str> {
    let mut words: Vec<String> = Vec::new();
    match &spec.launch {
        Launch::Stdio { command, args, .. } => {
            for word in std::iter::once(command).chain(args.iter().take(8)) {
                // `@scope/pkg@1.2`, `mcp/time:latest`, `/usr/bin/pkg`, `path/to/pkg/dist/index.js`
                let package = match word.rfind(['@', ':']) {
                    Some(at) if at > 0 => &word[..at],
                    _ => word.as_str(),
                };
                let package = package.to_ascii_lowercase();
                words.extend(package.rsplit('/').next().map(str::to_owned));
                words.extend(installed(&word.to_ascii_lowercase()));
                words.push(package);
            }
        }
        Launch::Http { url, .. } | Launch::Sse { url, .. } | Launch::Ws { url, .. } => {
            let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
            words.extend(host);
        }
    }
    let is_known = |known: &&Known| known.known_as.iter().any(|name| words.contains(name));
    LIBRARY.iter().find(is_known).map(|known| known.text.as_str())
}

/// The package that a path leads into, where npm has put it: `…/node_modules/@scope/pkg/dist/index.js`.
fn installed(path: &str) -> Option<String> {
    let (_, below) = path.rsplit_once("node_modules/")?;
    let parts = if below.starts_with('@') { 2 } else { 1 };
    let package: Vec<&str> = below.split('/').take(parts).collect();
    Some(package.join("/"))
}

/// The first sentence, and no more than a line of it.
fn first_sentence(text: &str) -> String {
    let text: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    let sentence = &text[..end];
    if sentence.chars().count() <= INSTRUCTIONS_LIMIT {
        return sentence.to_owned();
    }
    let cut: String = sentence.chars().take(INSTRUCTIONS_LIMIT).collect();
    let cut = cut.rsplit_once(' ').map_or(cut.as_str(), |(whole, _)| whole);
    format!("{cut}…")
}

#[cfg(test)]
#[path = "descriptions_tests.rs"]
mod tests;
