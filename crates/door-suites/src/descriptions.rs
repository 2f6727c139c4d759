//! Descriptions of children, for models.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use switchboard_core::describe_json_error;
use switchboard_sys::files::Dir;

use crate::config::Config;
use crate::discovery::Issue;
use crate::paths::SuitePaths;
use crate::spec::{ChildSpec, Launch};

/// Name of the workspace's descriptions file, in `.switchboard/`.
pub const DESCRIPTIONS_NAME: &str = "mcp-descriptions.json";

/// Maximum size of a descriptions file, in bytes. No handwritten file is this large.
const LIMIT: u64 = 1 << 20;

/// Maximum length of a description taken from a child's own instructions: about one line, in characters.
const INSTRUCTIONS_LIMIT: usize = 120;

/// Descriptions written for this workspace, read from `mcp-descriptions.json`.
///
/// The suite proxy's architecture defines the format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct Descriptions {
    /// Descriptions by child name.
    pub mcps: BTreeMap<String, Description>,
}

/// Descriptions of one child.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(default)]
pub struct Description {
    /// Description for models that may call the child.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switchboard: Option<String>,
    /// Description for the model inside the child's wrapper.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claude: Option<String>,
}

impl Descriptions {
    /// Loads the workspace's descriptions file.
    ///
    /// Returns empty descriptions if the file is missing, and an [`Issue`] if it is invalid.
    pub fn load(paths: &SuitePaths) -> Result<Self, Issue> {
        let file = paths.workspace.join(".switchboard").join(DESCRIPTIONS_NAME);
        let problem = |message: String| Issue { file: file.clone(), message, child: None };
        let folder = Dir::open_root(&paths.workspace).and_then(|root| root.subdir(".switchboard"));
        let Some(folder) = folder.map_err(|error| problem(error.to_string()))? else {
            return Ok(Self::default());
        };
        match folder.read(DESCRIPTIONS_NAME, LIMIT).map_err(|error| problem(error.to_string()))? {
            Some(found) => serde_json::from_slice(&found.bytes).map_err(|error| {
                problem(format!("is not a file of descriptions: {}", describe_json_error(&error)))
            }),
            None => Ok(Self::default()),
        }
    }

    /// Returns the descriptions of a child. Names are case-insensitive.
    pub fn get(&self, child: &str) -> Option<&Description> {
        self.mcps
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(child))
            .map(|(_, description)| description)
    }
}

/// Returns the description of a child that is shown to models.
///
/// The owner's description takes precedence over a built-in one, and this over one from the child's own instructions.
/// If there is none of these, the description is `<name> tools`.
pub fn suite_description(
    spec: &ChildSpec,
    config: &Config,
    descriptions: &Descriptions,
    cached_instructions: Option<&str>,
) -> String {
    owner_description(spec, config, descriptions)
        .or_else(|| non_empty(built_in(spec)))
        .or_else(|| non_empty(cached_instructions).map(|text| first_sentence(&text)))
        .unwrap_or_else(|| format!("{} tools", spec.name))
}

/// Returns the owner's description of a child.
///
/// The `description` field of the child's file is used only if there is no built-in description, because most such
/// files are copied from elsewhere.
pub(crate) fn owner_description(
    spec: &ChildSpec,
    config: &Config,
    descriptions: &Descriptions,
) -> Option<String> {
    non_empty(spec.switchboard_description.as_deref())
        .or_else(|| non_empty(config.suite(&spec.name).and_then(|suite| suite.description.as_deref())))
        .or_else(|| non_empty(descriptions.get(&spec.name).and_then(|of| of.switchboard.as_deref())))
        .or_else(|| non_empty(spec.description.as_deref()).filter(|_| built_in(spec).is_none()))
}

fn non_empty(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[derive(Deserialize)]
struct KnownServer {
    /// Names of packages, programs or hosts that identify the server.
    known_as: Vec<String>,
    text: String,
}

static BUILT_IN: LazyLock<Vec<KnownServer>> =
    LazyLock::new(|| serde_json::from_str(include_str!("descriptions.json")).unwrap_or_default());

/// Returns the built-in description of a well-known server, which is identified by package, program or host.
fn built_in(spec: &ChildSpec) -> Option<&'static str> {
    let mut words: Vec<String> = Vec::new();
    match &spec.launch {
        Launch::Stdio { command, args, .. } => {
            for word in std::iter::once(command).chain(args.iter().take(8)) {
                // Strip the version or tag, as in `@scope/pkg@1.2` or `mcp/time:latest`. Paths such as `/usr/bin/pkg`
                // or `path/to/pkg/dist/index.js` have none.
                let package = match word.rfind(['@', ':']) {
                    Some(at) if at > 0 => &word[..at],
                    _ => word.as_str(),
                };
                let package = package.to_ascii_lowercase();
                words.extend(package.rsplit('/').next().map(str::to_owned));
                words.extend(npm_package(&word.to_ascii_lowercase()));
                words.push(package);
            }
        }
        Launch::Http { url, .. } | Launch::Sse { url, .. } | Launch::Ws { url, .. } => {
            let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
            words.extend(host);
        }
    }
    let is_known = |known: &&KnownServer| known.known_as.iter().any(|name| words.contains(name));
    BUILT_IN.iter().find(is_known).map(|known| known.text.as_str())
}

/// Returns the npm package in a path such as `…/node_modules/@scope/pkg/dist/index.js`.
fn npm_package(path: &str) -> Option<String> {
    let (_, below) = path.rsplit_once("node_modules/")?;
    let parts = if below.starts_with('@') { 2 } else { 1 };
    let package: Vec<&str> = below.split('/').take(parts).collect();
    Some(package.join("/"))
}

/// Returns the first sentence of a text, truncated to one line.
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
