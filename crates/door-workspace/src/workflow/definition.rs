//! What a workflow is: its phases, its rules and whom its messages go to. Checked once, when it is read.

use globset::{Glob, GlobBuilder};
use serde::{Deserialize, Serialize};
use switchboard_core::{Kind, quote_continuation, sanitize_description};

use crate::roles::Role;

/// More phases than anyone follows; a file with more is a mistake.
const MAX_PHASES: usize = 50;

/// A workflow, checked. Its JSON is what `.switchboard/workflows/*.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Workflow {
    /// Its name: lower case, words joined by `-`.
    pub name: String,
    /// What it is for, in a sentence.
    pub description: String,
    /// Other names that lead to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// How whoever works in it should think.
    pub persona: String,
    /// Tools that must not be used while it is active.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prohibited_tools: Vec<String>,
    /// To whom a message without a recipient goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<WorkflowRoute>,
    /// What is to be done, in order.
    pub phases: Vec<Phase>,
}

/// One phase of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Phase {
    /// A word for it.
    pub id: String,
    /// What is to be done.
    pub instruction: String,
    /// What shows that it was done; where it is set, at least one artifact must be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_evidence: Option<String>,
    /// Tools that must have been used during the phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_tools: Vec<String>,
    /// Patterns each of which one of the artifacts must match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactPattern>,
}

/// To whom a message of one action goes when its sender names nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WorkflowRoute {
    /// The action.
    pub action: Kind,
    /// Whoever has this role.
    pub to: Role,
    /// The phase that must be done before; 0 where none must.
    pub after_phase: usize,
}

/// A glob over paths below the workspace, in which `*` does not cross a `/`.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactPattern(Glob);

/// What is wrong with a workflow file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field '{field}': {problem}")]
pub(crate) struct BadField {
    /// Which, as a path from the top.
    pub(crate) field: String,
    /// What is wrong with it.
    pub(crate) problem: String,
}

/// The file, as people write it. A field that nobody knows is a typing mistake, so it is refused.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WorkflowFile {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    aliases: Vec<String>,
    persona: String,
    #[serde(default)]
    prohibited_tools: Vec<String>,
    #[serde(default)]
    routes: Vec<RouteFile>,
    #[serde(alias = "steps")]
    phases: Vec<PhaseFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PhaseFile {
    id: String,
    instruction: String,
    #[serde(default)]
    required_evidence: Option<String>,
    #[serde(default)]
    required_tools: Vec<String>,
    #[serde(default)]
    artifacts: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RouteFile {
    action: String,
    to: String,
    #[serde(default)]
    after_phase: usize,
}

impl Workflow {
    /// Reads and checks a workflow file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BadField> {
        let mut parser = serde_json::Deserializer::from_slice(bytes);
        let file: WorkflowFile = serde_path_to_error::deserialize(&mut parser)
            .map_err(|error| bad(error.path().to_string(), error.into_inner().to_string()))?;
        parser.end().map_err(|error| bad(".", error.to_string()))?;
        file.check()
    }

    /// The phase of this number, counted from 1.
    pub fn phase(&self, number: usize) -> Option<&Phase> {
        number.checked_sub(1).and_then(|index| self.phases.get(index))
    }
}

/// A workflow's name in its one spelling: lower case, `-` for `_` and spaces.
pub(crate) fn normal(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', ' '], "-")
}

impl ArtifactPattern {
    /// Checks a glob. It is matched against paths relative to the workspace, so it must be one.
    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(format!("'{text}' must be a path below the workspace"));
        }
        GlobBuilder::new(text).literal_separator(true).build().map(Self).map_err(|error| error.to_string())
    }

    /// The glob as it was written.
    pub fn as_str(&self) -> &str {
        self.0.glob()
    }

    /// Whether a path below the workspace fits.
    pub(crate) fn is_match(&self, path: &str) -> bool {
        self.0.compile_matcher().is_match(path)
    }
}

impl Serialize for ArtifactPattern {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl WorkflowFile {
    fn check(self) -> Result<Workflow, BadField> {
        let name = check_name("name", &self.name)?;
        let aliases = self.aliases.iter().enumerate();
        let aliases = aliases.map(|(at, alias)| check_name(&format!("aliases[{at}]"), alias));
        let aliases = aliases.collect::<Result<_, _>>()?;
        if !(1..=MAX_PHASES).contains(&self.phases.len()) {
            let found = self.phases.len();
            return Err(bad("phases", format!("has {found} entries; a workflow has 1 to {MAX_PHASES}")));
        }
        let mut phases: Vec<Phase> = Vec::with_capacity(self.phases.len());
        for (at, phase) in self.phases.into_iter().enumerate() {
            if phases.iter().any(|earlier| earlier.id == phase.id) {
                return Err(bad(format!("phases[{at}].id"), format!("'{}' is there twice", phase.id)));
            }
            phases.push(phase.check(at)?);
        }
        let routes = self.routes.into_iter().enumerate();
        let routes = routes.map(|(at, route)| route.check(at, phases.len())).collect::<Result<_, _>>()?;
        Ok(Workflow {
            name,
            description: told(&self.description),
            aliases,
            persona: not_blank("persona".to_owned(), &self.persona)?,
            prohibited_tools: self.prohibited_tools.iter().map(|tool| told(tool)).collect(),
            routes,
            phases,
        })
    }
}

impl PhaseFile {
    fn check(self, at: usize) -> Result<Phase, BadField> {
        let field = |name: &str| format!("phases[{at}].{name}");
        let patterns = self.artifacts.iter().enumerate();
        let patterns = patterns.map(|(number, glob)| {
            ArtifactPattern::parse(glob)
                .map_err(|problem| bad(field(&format!("artifacts[{number}]")), problem))
        });
        Ok(Phase {
            artifacts: patterns.collect::<Result<_, _>>()?,
            id: not_blank(field("id"), &self.id)?,
            instruction: not_blank(field("instruction"), &self.instruction)?,
            required_evidence: self
                .required_evidence
                .map(|text| told(&text))
                .filter(|text| !text.trim().is_empty()),
            required_tools: self.required_tools.iter().map(|tool| told(tool)).collect(),
        })
    }
}

impl RouteFile {
    fn check(self, at: usize, phases: usize) -> Result<WorkflowRoute, BadField> {
        let field = |name: &str| format!("routes[{at}].{name}");
        let action = Kind::parse(&self.action).map_err(|error| bad(field("action"), error.to_string()))?;
        let to = Role::parse(&self.to).map_err(|error| bad(field("to"), error.to_string()))?;
        let to = to.ok_or_else(|| bad(field("to"), "'none' reaches nobody; name a role"))?;
        if self.after_phase > phases {
            let problem = format!("{} is beyond the last phase, {phases}", self.after_phase);
            return Err(bad(field("afterPhase"), problem));
        }
        Ok(WorkflowRoute { action, to, after_phase: self.after_phase })
    }
}

fn check_name(field: &str, text: &str) -> Result<String, BadField> {
    let name = normal(text);
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(legal) {
        Ok(name)
    } else {
        let problem = "a name has 1 to 64 letters, digits and '-'";
        Err(bad(field, format!("'{}' is no name: {problem}", text.escape_debug())))
    }
}

fn not_blank(field: String, text: &str) -> Result<String, BadField> {
    let text = told(text);
    if text.trim().is_empty() { Err(bad(field, "is empty")) } else { Ok(text) }
}

/// A text of a workflow file as a model may read it: a repository brings such files along. No line of it but the first
/// stands alone.
fn told(text: &str) -> String {
    quote_continuation(&sanitize_description(text).text)
}

fn bad(field: impl Into<String>, problem: impl Into<String>) -> BadField {
    BadField { field: field.into(), problem: problem.into() }
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
