//! What becomes of a call, and what a model is told of it.

use serde::Deserialize;
use serde_json::value::RawValue;
use switchboard_core::sanitize_description;

use crate::arguments::{Call, shape};
use crate::child::ChildError;
use crate::host::RpcError;
use crate::metrics::Outcome;
use crate::tool::Tool;
use crate::tool_result;

/// What became of a call.
pub(crate) struct CallOutcome {
    pub(crate) result: Result<Box<RawValue>, RpcError>,
    pub(crate) outcome: Outcome,
    /// Whether the tool is one that the child has.
    pub(crate) is_known: bool,
}

impl CallOutcome {
    pub(crate) fn refused(text: &str, is_known: bool) -> Self {
        Self { result: Ok(tool_result::refusal(text)), outcome: Outcome::Refused, is_known }
    }

    /// What the child answered as an error goes on as that; all else is for the model to read.
    pub(crate) fn failed(error: ChildError, is_known: bool) -> Self {
        let result = match error {
            ChildError::Rpc(error) => Err(error),
            error => Ok(tool_result::refusal(&told(&error))),
        };
        Self { result, outcome: Outcome::Error, is_known }
    }
}

/// What went wrong, for a model to read. It quotes the child.
pub(crate) fn told(error: &ChildError) -> String {
    sanitize_description(&error.to_string()).text
}

/// The arguments of a call, checked. The error names what is wrong, and shows the schema and a call that would do.
pub(crate) fn checked(tool: &Tool, call: &Call<'_>) -> Result<Box<RawValue>, String> {
    let checker = tool.checker();
    let (wrong, arguments) = match call.arguments(checker) {
        Ok(arguments) => match serde_json::from_str(arguments.get()) {
            Ok(value) => (checker.check(&value), Some(arguments)),
            Err(error) => (vec![format!("'args' cannot be read: {error}")], None),
        },
        Err(text) => (vec![text], None),
    };
    if let Some(arguments) = arguments.filter(|_| wrong.is_empty()) {
        return Ok(arguments);
    }
    let example = shape(&tool.name).replace("{…}", &checker.example().to_string());
    Err(format!(
        "The arguments of {} do not fit:\n- {}\nSchema: {}\nExample: {example}",
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
    // Most results do not say, and may be large: looking for the word is much quicker than reading them.
    result.get().contains("\"isError\"")
        && serde_json::from_str::<Head>(result.get()).is_ok_and(|head| head.is_error)
}
