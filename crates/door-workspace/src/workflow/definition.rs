//! Definition of a workflow: phases, rules and message routes. Validated when read.

use globset::{Glob, GlobBuilder};
use serde::{Deserialize, Serialize};
use switchboard_core::{
    Kind, describe_field_error, describe_json_error, quote_continuation, sanitize_description,
};

use crate::roles::Role;

/// Maximum number of phases; a file with more phases is a mistake.
const MAX_PHASES: usize = 50;

/// A validated workflow, as defined in `.switchboard/workflows/*.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Workflow {
    /// Name of the workflow: lower case, with words joined by `-`.
    pub name: String,
    /// Purpose of the workflow, in one sentence.
    pub description: String,
    /// Alternative names of the workflow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// Instructions on how the agents should think.
    pub persona: String,
    /// Tools that are prohibited while the workflow is active.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prohibited_tools: Vec<String>,
    /// Routes of messages without a recipient.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<WorkflowRoute>,
    /// Phases of the workflow, in order.
    pub phases: Vec<Phase>,
}

/// One phase of a workflow.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Phase {
    /// Id of the phase.
    pub id: String,
    /// Instruction for the agents in this phase.
    pub instruction: String,
    /// Description of the evidence of completion. If present, at least one artifact is required.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_evidence: Option<String>,
    /// Tools that must be used during the phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub required_tools: Vec<String>,
    /// Patterns that must each match at least one artifact.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<ArtifactPattern>,
}

/// Route of a message without a recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct WorkflowRoute {
    /// The action to route.
    pub action: Kind,
    /// The role of the recipient.
    pub to: Role,
    /// Number of the phase that must be completed first; 0 if there is none.
    pub after_phase: usize,
}

/// Glob for paths relative to the workspace, in which `*` does not match `/`.
#[derive(Debug, Clone, PartialEq)]
pub struct ArtifactPattern(Glob);

/// Error in a field of a workflow file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("field '{field}': {problem}")]
pub(crate) struct BadField {
    /// Path of the field from the top level.
    pub(crate) field: String,
    /// Description of the error.
    pub(crate) problem: String,
}

/// Format of a workflow file.
///
/// Unknown fields are refused, because they are probably typing mistakes.
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
    /// Parses and validates a workflow file.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, BadField> {
        let mut parser = serde_json::Deserializer::from_slice(bytes);
        let file: WorkflowFile = serde_path_to_error::deserialize(&mut parser)
            .map_err(|error| bad(error.path().to_string(), describe_field_error(error.inner())))?;
        parser.end().map_err(|error| bad(".", describe_json_error(&error)))?;
        file.check()
    }

    /// Returns a phase by number, counted from 1.
    pub fn phase(&self, number: usize) -> Option<&Phase> {
        number.checked_sub(1).and_then(|index| self.phases.get(index))
    }
}

/// Normalizes a workflow name: lower case, with `-` instead of `_` and spaces.
pub(crate) fn normalize_name(name: &str) -> String {
    name.trim().to_lowercase().replace(['_', ' '], "-")
}

impl ArtifactPattern {
    /// Parses a glob. It must be relative, because it is matched against paths in the workspace.
    fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with('/') || text.split('/').any(|part| part == "..") {
            return Err(format!("'{text}' must be a path below the workspace"));
        }
        GlobBuilder::new(text).literal_separator(true).build().map(Self).map_err(|error| error.to_string())
    }

    /// Returns the glob as written.
    pub fn as_str(&self) -> &str {
        self.0.glob()
    }

    /// Returns true if the glob matches a path relative to the workspace.
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
                return Err(bad(format!("phases[{at}].id"), format!("'{}' appears twice", phase.id)));
            }
            phases.push(phase.check(at)?);
        }
        let routes = self.routes.into_iter().enumerate();
        let routes = routes.map(|(at, route)| route.check(at, phases.len())).collect::<Result<_, _>>()?;
        Ok(Workflow {
            name,
            description: sanitize_text(&self.description),
            aliases,
            persona: not_blank("persona".to_owned(), &self.persona)?,
            prohibited_tools: self.prohibited_tools.iter().map(|tool| sanitize_text(tool)).collect(),
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
                .map(|text| sanitize_text(&text))
                .filter(|text| !text.trim().is_empty()),
            required_tools: self.required_tools.iter().map(|tool| sanitize_text(tool)).collect(),
        })
    }
}

impl RouteFile {
    fn check(self, at: usize, phases: usize) -> Result<WorkflowRoute, BadField> {
        let field = |name: &str| format!("routes[{at}].{name}");
        let action = Kind::parse(&self.action).map_err(|error| bad(field("action"), error.to_string()))?;
        let to = Role::parse(&self.to).map_err(|error| bad(field("to"), error.to_string()))?;
        let to = to.ok_or_else(|| bad(field("to"), "'none' has no recipient; name a role"))?;
        if self.after_phase > phases {
            let problem = format!("{} is beyond the last phase, {phases}", self.after_phase);
            return Err(bad(field("afterPhase"), problem));
        }
        Ok(WorkflowRoute { action, to, after_phase: self.after_phase })
    }
}

fn check_name(field: &str, text: &str) -> Result<String, BadField> {
    let name = normalize_name(text);
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if (1..=64).contains(&name.len()) && name.bytes().all(legal) {
        Ok(name)
    } else {
        let problem = "a name has 1 to 64 letters, digits and '-'";
        Err(bad(field, format!("'{}' is not a valid name: {problem}", text.escape_debug())))
    }
}

fn not_blank(field: String, text: &str) -> Result<String, BadField> {
    let text = sanitize_text(text);
    if text.trim().is_empty() { Err(bad(field, "is empty")) } else { Ok(text) }
}

/// Sanitizes a text of a workflow file for a model.
///
/// Workflow files may come with repositories, so they are not trusted. All lines except the first are quoted.
fn sanitize_text(text: &str) -> String {
    quote_continuation(&sanitize_description(text).text)
}

fn bad(field: impl Into<String>, problem: impl Into<String>) -> BadField {
    BadField { field: field.into(), problem: problem.into() }
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
