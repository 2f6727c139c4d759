//! Extraction of the answer from a program's output.

use serde_json::Value;

use super::OutputFormat;
use super::program::ProgramError;

/// Extracts the answer from the output, without surrounding blank lines.
pub(super) fn extract(format: OutputFormat, output: &[u8]) -> Result<String, ProgramError> {
    let text =
        std::str::from_utf8(output).map_err(|error| ProgramError::NotUtf8 { at: error.valid_up_to() })?;
    let found = match format {
        OutputFormat::Plain => Some(text.to_owned()),
        OutputFormat::Codex => codex(text),
        OutputFormat::Claude => object(text).and_then(|object| claude(&object)).transpose()?,
        OutputFormat::Gemini => {
            object(text).and_then(|object| Some(object.get("response")?.as_str()?.to_owned()))
        }
    };
    match found.map(|answer| answer.trim().to_owned()) {
        Some(answer) if !answer.is_empty() => Ok(answer),
        _ => Err(ProgramError::NoAnswer),
    }
}

/// Returns the last agent message among the events: `item.completed` with an `agent_message`, or `msg` of the type
/// `agent_message` in older versions.
fn codex(text: &str) -> Option<String> {
    let message = |line: &str| {
        let event: Value = serde_json::from_str(line).ok()?;
        let of = |part: &Value, key: &str| {
            let is_message = part.get("type")?.as_str()? == "agent_message";
            is_message.then(|| part.get(key)?.as_str().map(str::to_owned)).flatten()
        };
        match event.get("item") {
            Some(item) if event.get("type")?.as_str()? == "item.completed" => of(item, "text"),
            _ => of(event.get("msg")?, "message"),
        }
    };
    text.lines().rev().find_map(message)
}

/// Returns the result in Claude Code's JSON object, or the error that the program reports.
fn claude(object: &Value) -> Option<Result<String, ProgramError>> {
    let result = object.get("result").and_then(Value::as_str);
    if object.get("is_error").and_then(Value::as_bool) == Some(true) {
        let reason = result.or_else(|| object.get("subtype")?.as_str()).unwrap_or("no reason given");
        return Some(Err(ProgramError::Reported { reason: reason.to_owned() }));
    }
    result.map(|result| Ok(result.to_owned()))
}

/// Parses the last JSON object of a text, because some programs print a greeting before the object.
fn object(text: &str) -> Option<Value> {
    let whole = serde_json::from_str::<Value>(text.trim()).ok();
    let last = whole.or_else(|| {
        let start = text.find('{')?;
        serde_json::Deserializer::from_str(&text[start..]).into_iter::<Value>().map_while(Result::ok).last()
    })?;
    match last {
        // A list of events ends with the result.
        Value::Array(mut events) => events.pop(),
        other => Some(other),
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
