//! Command-line provider: `claude -p`, `codex exec`, or any other program that reads a prompt and writes a reply.
//!
//! Such a program has no interface for tools of others, so the prompt defines a call protocol. The program is started
//! once per turn, without a shell. The program receives the whole conversation on stdin, and its stdout must contain
//! one JSON object: `{"tool": NAME, "args": {…}}` or `{"answer": TEXT}`. Other output is ignored.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use switchboard_sys::process::Spawn;
use switchboard_sys::reaper::ReaperClient;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::conversation::Usage;
use super::error::ModelError;
use super::model::{Prompt, ToolCall, Turn, TurnEnd, TurnInput};
use crate::redact::{Secrets, redact};

/// Maximum size of a reply, in bytes. A longer reply indicates a broken program.
const REPLY_LIMIT: u64 = 1 << 20;

/// Maximum number of bytes of stderr kept for the error message.
const COMPLAINT_LIMIT: u64 = 64 << 10;

/// Grace period before a program is killed whose reply is no longer needed.
const GRACE: Duration = Duration::from_millis(500);

/// Prefixes of environment variables that configure such programs, in addition to the variables that every program
/// inherits.
const VARIABLES: [&str; 4] = ["ANTHROPIC_", "OPENAI_", "CLAUDE_", "CODEX_"];

/// Tool name recorded for a call that could not be parsed.
const UNREADABLE: &str = "(unreadable)";

/// Description of the call protocol, for the model.
const PROTOCOL: &str = "You answer by program. Do not use any tools of your own. Your whole reply has to be exactly one \
     JSON object and nothing else:\n\
     {\"tool\": \"<name>\", \"args\": {<arguments as its schema says>}} to use one of the tools below, or\n\
     {\"answer\": \"<text>\"} when you are done.\n\
     After a tool was used you are asked again, with its result at the end.";

/// A conversation with a command-line program.
#[derive(Debug)]
pub(super) struct Command {
    /// The program and its arguments.
    words: Vec<String>,
    folder: PathBuf,
    /// The conversation so far. Text is only appended.
    prompt: String,
    guard: Option<ReaperClient>,
}

#[derive(Deserialize)]
struct Reply {
    tool: Option<String>,
    args: Option<Box<RawValue>>,
    answer: Option<String>,
}

impl Command {
    pub(super) fn new(
        command: &[String],
        folder: PathBuf,
        task: &Prompt<'_>,
        guard: Option<ReaperClient>,
    ) -> Self {
        let mut prompt = format!("{}\n\n{PROTOCOL}\n\n# Tools\n\n", task.system);
        for tool in task.tools {
            let line = json!({ "name": tool.name, "description": tool.description, "args": tool.schema });
            let _ = writeln!(prompt, "{line}");
        }
        let _ = write!(prompt, "\n# Question\n\n{}\n", task.question);
        Self { words: command.to_vec(), folder, prompt, guard }
    }

    pub(super) async fn next(&mut self, input: TurnInput) -> Result<Turn, ModelError> {
        for done in &input.results {
            let what = if done.is_error { "failed" } else { "answered" };
            let _ = write!(self.prompt, "\n# {} {what}\n\n{}\n", done.tool, done.text);
        }
        if let Some(note) = &input.note {
            let _ = write!(self.prompt, "\n# Note\n\n{note}\n");
        }
        // The caller sets the time limit: if this future is dropped, the program and its descendants are killed.
        let reply = self.run().await?;
        let usage =
            Usage { input_tokens: estimate(&self.prompt), output_tokens: estimate(&reply), estimated: true };
        let mut turn = Turn { text: String::new(), calls: Vec::new(), usage, end: TurnEnd::Whole };
        match find(&reply) {
            Some(Reply { answer: Some(answer), .. }) => turn.text = answer,
            Some(Reply { tool: Some(tool), args, .. }) => {
                let shown = args.as_deref().map_or("{}", RawValue::get);
                let call = format!("{{\"tool\": {}, \"args\": {shown}}}", json!(tool));
                let _ = write!(self.prompt, "\n# You replied\n\n{call}\n");
                let args = args
                    .map_or_else(|| RawValue::from_string("{}".to_owned()).map_err(|e| e.to_string()), Ok);
                turn.calls.push(ToolCall { id: String::new(), tool, args });
            }
            // A malformed object counts as a failed call. Any other text is the answer, even if it ignores the
            // protocol.
            _ if reply.contains('{') && reply.contains("\"tool\"") => {
                let _ = write!(self.prompt, "\n# You replied\n\n{}\n", reply.trim());
                let problem = "your reply was not one valid JSON object; reply again".to_owned();
                turn.calls.push(ToolCall {
                    id: String::new(),
                    tool: UNREADABLE.to_owned(),
                    args: Err(problem),
                });
            }
            _ => reply.trim().clone_into(&mut turn.text),
        }
        if turn.text.is_empty() && turn.calls.is_empty() {
            return Err(self.failed("printed no answer; try it by hand with a prompt on stdin", ""));
        }
        Ok(turn)
    }

    /// Runs the program and returns its stdout.
    async fn run(&self) -> Result<String, ModelError> {
        let Some((program, args)) = self.words.split_first() else {
            return Err(self.failed("is empty; set 'command' of the wrapper", ""));
        };
        let spawn = Spawn::new(program).args(args).cwd(&self.folder);
        let mut child = provider_variables()
            .fold(spawn, |spawn, (name, value)| spawn.env(name, value))
            .start(self.guard.as_ref())
            .await
            .map_err(|error| {
                let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
                self.failed(
                    &format!("cannot be started: {cause}; check that it is installed and on PATH"),
                    "",
                )
            })?;
        let (stdin, stdout, stderr) = (child.stdin_writer(), child.stdout_reader(), child.stderr_reader());
        let write = async {
            if let Some(mut stdin) = stdin {
                // Ignore write errors, since a program that does not read all its input may still reply.
                let _ = stdin.write_all(self.prompt.as_bytes()).await;
            }
        };
        let ((), reply, complaint) =
            tokio::join!(write, read(stdout, REPLY_LIMIT), read(stderr, COMPLAINT_LIMIT));
        let last_error_line = redact(&last_line(&complaint), &Secrets::default());
        if reply.len() as u64 > REPLY_LIMIT {
            return Err(self.failed(&format!("wrote more than {REPLY_LIMIT} bytes"), &last_error_line));
        }
        match child.stop(GRACE).await {
            Ok(status) if status.success() => Ok(reply),
            Ok(status) => Err(self.failed(&format!("ended with {status}"), &last_error_line)),
            Err(error) => Err(self.failed(&format!("failed: {error}"), &last_error_line)),
        }
    }

    fn failed(&self, problem: &str, last_error_line: &str) -> ModelError {
        // Show only the program's name, because its arguments may be private.
        let command = self.words.first().cloned().unwrap_or_default();
        ModelError::Command { command, problem: problem.to_owned(), detail: last_error_line.to_owned() }
    }
}

/// Returns the environment variables that configure such programs.
///
/// Empty variables are skipped: variables that are unset reach this process as empty strings, and the programs would
/// treat an empty key as a key.
fn provider_variables() -> impl Iterator<Item = (OsString, OsString)> {
    let is_one = |name: &OsString| VARIABLES.iter().any(|start| name.to_string_lossy().starts_with(start));
    std::env::vars_os().filter(move |(name, value)| !value.is_empty() && is_one(name))
}

/// Reads a stream up to `limit` plus one byte, and discards the rest.
async fn read(stream: Option<impl AsyncRead + Unpin>, limit: u64) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut bytes = Vec::new();
    // After a read error, use the bytes that were read so far.
    let _ = (&mut stream).take(limit + 1).read_to_end(&mut bytes).await;
    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Finds the first reply object in a text. Models often add code fences and sentences around the object.
fn find(text: &str) -> Option<Reply> {
    for (at, _) in text.match_indices('{') {
        let mut objects = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Reply>();
        if let Some(Ok(reply)) = objects.next()
            && (reply.tool.is_some() || reply.answer.is_some())
        {
            return Some(reply);
        }
    }
    None
}

/// Estimates the number of tokens, because such a program does not report it.
fn estimate(text: &str) -> u64 {
    text.len().div_ceil(4) as u64
}

fn last_line(text: &str) -> String {
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    switchboard_core::sanitize_description(line).text.chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn reply_is_found_in_surrounding_text() {
        let answer = |text: &str| find(text).and_then(|reply| reply.answer);
        assert_eq!(answer(r#"{"answer": "yes"}"#).as_deref(), Some("yes"));
        assert_eq!(answer("Sure!\n```json\n{\"answer\": \"{yes}\"}\n```").as_deref(), Some("{yes}"));
        assert_eq!(
            answer(r#"the set {1, 2} {"x": 1} {"answer": "b"} {"answer": "c"}"#).as_deref(),
            Some("b")
        );
        assert_eq!(answer("no object"), None);
        let call = find(r#"{"tool": "add", "args": {"a": 1}}"#).expect("a call");
        assert_eq!((call.tool.as_deref(), call.args.expect("args").get()), (Some("add"), r#"{"a": 1}"#));
    }
}
