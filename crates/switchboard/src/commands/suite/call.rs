//! The verb `switchboard suite call`.

use clap::Args;
use door_suites::{Caller, SuiteError, Suites};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use switchboard_core::{describe_json_error, suggest_similar};

use crate::cli::help::examples;
use crate::context::Context;
use crate::failure::{Exit, Failure};

/// Call one of a server's tools, as a model would.
#[derive(Debug, Args)]
#[command(after_long_help = examples![
    "switchboard suite call git git_status repo_path=.",
    "switchboard suite call memory search_nodes '{\"query\": \"parser\"}'",
    "switchboard suite call git git_log repo_path=. max_count:=5",
])]
pub(crate) struct Call {
    /// The server
    name: String,
    /// The tool
    tool: String,
    /// The tool's arguments: one JSON object, or KEY=TEXT and KEY:=JSON
    #[arg(value_name = "ARGUMENT", allow_hyphen_values = true)]
    arguments: Vec<String>,
}

pub(crate) async fn run(args: Call, context: Context) -> Result<(), Failure> {
    let arguments = read(&args.arguments)?;
    let suites = super::open(&context).await?;
    let request = json!({ "action": "call", "subtool": args.tool, "args": arguments });
    let answer = ask(&suites, &args.name, &request, &Caller::default()).await;
    suites.close().await;
    let answer = answer?;
    if context.printer.is_json() {
        // Print the server's result byte for byte; both the result and the exit code report a failure.
        context.printer.line(answer.raw.get());
        return answer.succeeded().map(drop);
    }
    let answer = answer.succeeded()?;
    context.printer.line(answer.text());
    Ok(())
}

/// Result of a tool call.
pub(crate) struct Answer {
    raw: Box<RawValue>,
    value: Value,
}

impl Answer {
    /// Renders the parts that a person can read, and only the type of all other parts.
    pub(crate) fn text(&self) -> String {
        let blocks =
            self.value.get("content").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let shown: Vec<String> = blocks.iter().map(block).collect();
        match (shown.is_empty(), self.value.get("structuredContent")) {
            (true, Some(structured)) => structured.to_string(),
            _ => shown.join("\n"),
        }
    }

    pub(crate) fn is_error(&self) -> bool {
        self.value.get("isError") == Some(&Value::Bool(true))
    }

    /// Returns the result, or a failure if the tool or the connection failed.
    pub(crate) fn succeeded(self) -> Result<Self, Failure> {
        if self.is_error() {
            let text = self.text();
            return Err(Failure::new(
                "tool_failed",
                Exit::Failed,
                if text.is_empty() { "it failed".to_owned() } else { text },
            ));
        }
        Ok(self)
    }
}

fn block(block: &Value) -> String {
    let text = |key: &str| block.get(key).and_then(Value::as_str);
    match (text("type"), text("text"), text("mimeType")) {
        (Some("text"), Some(text), _) => text.to_owned(),
        (Some(kind), _, Some(mime)) => format!("[{kind}, {mime}; --json shows it]"),
        (kind, ..) => format!("[{}; --json shows it]", kind.unwrap_or("content")),
    }
}

/// Calls the suite of a server, which is given by its name or its tool's name.
pub(crate) async fn ask(
    suites: &Suites,
    name: &str,
    request: &Value,
    caller: &Caller,
) -> Result<Answer, Failure> {
    let arguments = serde_json::value::to_raw_value(request).map_err(anyhow::Error::from)?;
    let Some(answer) = suites.call_child(name, Some(&arguments), caller).await else {
        if let Some(problem) = suites.issues().iter().find(|problem| problem.is_about(name)) {
            let (file, problem) = (problem.file.clone(), problem.message.clone());
            return Err(SuiteError::BadFile { file, problem }.into());
        }
        let names = suites.children();
        let near = suggest_similar(name, names.iter().map(String::as_str));
        let hint = match (near.first(), names.is_empty()) {
            (Some(near), _) => format!("did you mean '{near}'?"),
            (None, true) => "`switchboard suite add NAME -- COMMAND` adds one".to_owned(),
            (None, false) => format!("there are {}", names.join(", ")),
        };
        return Err(Failure::new(
            "unknown_suite",
            Exit::NotFound,
            format!("there is no MCP server '{name}'"),
        )
        .hint(hint));
    };
    let raw = answer.map_err(|error| Failure::new("rpc_error", Exit::Failed, error.to_string()))?;
    let value = serde_json::from_str(raw.get()).map_err(anyhow::Error::from)?;
    Ok(Answer { raw, value })
}

/// Parses tool arguments as typed on the command line.
fn read(words: &[String]) -> Result<Value, Failure> {
    let usage = |message: String| {
        Failure::new("usage", Exit::Usage, message).hint("write '{\"key\": 1}', or KEY=TEXT, or KEY:=JSON")
    };
    if let [only] = words
        && only.trim_start().starts_with('{')
    {
        return serde_json::from_str(only)
            .map_err(|error| usage(format!("the arguments are not JSON: {}", describe_json_error(&error))));
    }
    let mut arguments = Map::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| usage(format!("'{word}' has no '='")))?;
        let (key, value) = match key.strip_suffix(':') {
            Some(key) => {
                let parsed = serde_json::from_str(value);
                (
                    key,
                    parsed.map_err(|error| {
                        usage(format!("'{key}': '{value}' is not JSON: {}", describe_json_error(&error)))
                    })?,
                )
            }
            None => (key, Value::String(value.to_owned())),
        };
        if key.is_empty() {
            return Err(usage(format!("'{word}' has no key")));
        }
        arguments.insert(key.to_owned(), value);
    }
    Ok(Value::Object(arguments))
}

#[cfg(test)]
#[path = "call_tests.rs"]
mod tests;
