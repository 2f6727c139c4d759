//! Outcome of a tool call, and the error text that the model gets.

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::{describe_json_error, sanitize_description};

use crate::arguments::{Call, call_example};
use crate::child::ChildError;
use crate::host::RpcError;
use crate::metrics::Outcome;
use crate::tool::Tool;
use crate::tool_result;

/// Outcome of one tool call.
pub(crate) struct CallOutcome {
    pub(crate) result: Result<Box<RawValue>, RpcError>,
    pub(crate) outcome: Outcome,
    /// True if the child has a tool of this name.
    pub(crate) is_known: bool,
}

impl CallOutcome {
    pub(crate) fn refused(text: &str, is_known: bool) -> Self {
        Self { result: Ok(tool_result::refusal(text)), outcome: Outcome::Refused, is_known }
    }

    /// Builds the outcome of a failed call.
    ///
    /// JSON-RPC errors of the child are passed through unchanged; other errors become text for the model.
    pub(crate) fn failed(error: ChildError, is_known: bool) -> Self {
        let result = match error {
            ChildError::Rpc(error) => Err(error),
            error => Ok(tool_result::refusal(&error_text(&error))),
        };
        Self { result, outcome: Outcome::Error, is_known }
    }
}

/// Renders an error for the model. The text is sanitized, because it quotes the child.
pub(crate) fn error_text(error: &ChildError) -> String {
    sanitize_description(&error.to_string()).text
}

/// Validates the arguments of a call against the tool's schema.
///
/// The error text lists the violations and adds the schema and a valid example call.
pub(crate) fn check_arguments(tool: &Tool, call: &Call<'_>) -> Result<Box<RawValue>, String> {
    let checker = tool.checker();
    let (wrong, arguments) = match call.arguments(checker) {
        Ok(arguments) => match serde_json::from_str(arguments.get()) {
            Ok(value) => (checker.check(&value), Some(arguments)),
            Err(error) => (vec![format!("'args' cannot be read: {}", describe_json_error(&error))], None),
        },
        Err(text) => (vec![text], None),
    };
    if let Some(arguments) = arguments.filter(|_| wrong.is_empty()) {
        return Ok(arguments);
    }
    let example = call_example(&tool.name).replace("{…}", &checker.example().to_string());
    Err(format!(
        "The arguments of {} do not match its schema:\n- {}\nSchema: {}\nExample: {example}",
        tool.name,
        wrong.join("\n- "),
        checker.shown()
    ))
}

pub(crate) fn is_error(result: &RawValue) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        #[serde(default)]
        is_error: bool,
    }
    // Most results do not contain the flag and may be large, so search for the key before parsing.
    result.get().contains("\"isError\"")
        && serde_json::from_str::<Head>(result.get()).is_ok_and(|head| head.is_error)
}
