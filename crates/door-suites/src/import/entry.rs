//! Converts one server entry of a client's settings into Switchboard's file format.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::Client;
use crate::expand::is_variable;
use crate::mcp_json::{CommandLine, McpFile, TransportKind, launch_template_of};

/// Working directory of imported children: the workspace, relative to `.switchboard/mcps/<name>/`.
///
/// Relative paths in imported entries refer to the workspace. The value itself is relative, so that it stays valid in a
/// copy of the repository.
const FROM_CHILD: &str = "../../..";

/// Keys under which clients list allowed tools; `NOT` contains the keys for denied tools.
const ONLY: &[&str] = &["enabled_tools", "includeTools", "enabledTools"];
const NOT: &[&str] = &["disabled_tools", "disabledTools", "excludeTools"];

/// Client and workspace to which the settings belong.
pub(super) struct Context<'c> {
    pub(super) client: Option<Client>,
    pub(super) workspace: &'c Path,
}

/// An entry of a client's settings, after conversion.
pub(super) enum Entry {
    /// A server in Switchboard's file format, with notes for its owner.
    Server(Box<McpFile>, Vec<String>),
    /// The entry that starts Switchboard itself.
    Switchboard,
}

/// Converts one entry. The error is the reason why it cannot be imported.
pub(super) fn read(name: &str, entry: &Value, context: &Context<'_>) -> Result<Entry, String> {
    let Some(entry) = entry.as_object() else { return Err("it is not an object".to_owned()) };
    if is_switchboard(name, entry) {
        return Ok(Entry::Switchboard);
    }
    if entry.get("disabled") == Some(&Value::Bool(true)) || entry.get("enabled") == Some(&Value::Bool(false))
    {
        return Err("it is disabled there".to_owned());
    }
    let mut reader = Reader { entry, context, notes: Vec::new() };
    let mut file = reader.file()?;
    reader.limits(&mut file);
    launch_template_of(&file, "").map_err(|error| error.to_string())?;
    Ok(Entry::Server(Box::new(file), reader.notes))
}

/// Returns true if an entry starts Switchboard itself, whether `switchboard init` or a person wrote the entry.
pub(super) fn is_switchboard(name: &str, entry: &Map<String, Value>) -> bool {
    let command = entry.get("command").and_then(Value::as_str).unwrap_or_default();
    let program = Path::new(command).file_stem().and_then(|stem| stem.to_str());
    let serves =
        entry.get("args").and_then(Value::as_array).is_some_and(|args| args.iter().any(|arg| arg == "mcp"));
    let url =
        ["url", "serverUrl", "httpUrl"].iter().find_map(|key| entry.get(*key)?.as_str()).unwrap_or_default();
    let is_near =
        ["http://127.0.0.1", "http://localhost", "http://[::1]"].iter().any(|near| url.starts_with(near));
    (program == Some("switchboard") && serves)
        || (name.to_ascii_lowercase().starts_with("switchboard") && is_near)
}

struct Reader<'r> {
    entry: &'r Map<String, Value>,
    context: &'r Context<'r>,
    notes: Vec<String>,
}

impl Reader<'_> {
    fn file(&mut self) -> Result<McpFile, String> {
        let mut file = McpFile { description: self.text("description")?, ..McpFile::default() };
        if let Some(command) = self.command()? {
            file.cwd = Some(match self.text("cwd")? {
                Some(cwd) if Path::new(&cwd).is_absolute() || cwd.starts_with("${") => cwd,
                Some(cwd) => format!("{FROM_CHILD}/{cwd}"),
                None => FROM_CHILD.to_owned(),
            });
            file.command = Some(command);
            return Ok(file);
        }
        let word = self.text("type")?;
        let (key, url) = ["httpUrl", "serverUrl", "url"]
            .iter()
            .find_map(|key| Some((*key, self.text(key).transpose()?)))
            .ok_or_else(|| match self.entry.get("source").and_then(Value::as_str) {
                Some("extension") => "it belongs to an extension".to_owned(),
                _ => "it has neither 'command' nor 'url'".to_owned(),
            })?;
        let url = url?;
        let transport = match word.as_deref() {
            Some("http" | "streamable-http" | "streamableHttp") => TransportKind::Http,
            Some("sse") => TransportKind::Sse,
            Some("ws" | "websocket") => TransportKind::Ws,
            Some(other) => return Err(format!("its type '{}' is unknown", other.escape_debug())),
            // In Gemini's settings, a plain `url` means the older SSE transport. So does a path that ends in `/sse`.
            None if key == "url" && self.context.client == Some(Client::Gemini) => TransportKind::Sse,
            None if url.split(['?', '#']).next().is_some_and(|path| path.ends_with("/sse")) => {
                TransportKind::Sse
            }
            None => TransportKind::Http,
        };
        (file.url, file.transport) = (Some(url), Some(transport));
        for key in ["headers", "http_headers"] {
            file.headers.extend(self.texts(key)?);
        }
        for (header, variable) in self.texts("env_http_headers")? {
            file.headers.insert(header, format!("${{{variable}}}"));
        }
        if let Some(variable) = self.text("bearer_token_env_var")? {
            file.headers.insert("Authorization".to_owned(), format!("Bearer ${{{variable}}}"));
        }
        Ok(file)
    }

    /// Converts the client's limits. Limits without an equivalent become notes for the owner.
    fn limits(&mut self, file: &mut McpFile) {
        for (keys, ours) in [(ONLY, "allow"), (NOT, "deny")] {
            for key in keys {
                if let Some(tools) = self.entry.get(*key).filter(|tools| !tools.is_null()) {
                    self.notes.push(format!(
                        "'{key}' is not imported; to keep this filter, set expose.{ours} in switchboard.config.json to {tools}"
                    ));
                }
            }
        }
        if let Some(path) = self.entry.get("envFile").and_then(Value::as_str) {
            self.notes.push(format!(
                "its variables in {path} are not imported; add the required ones to its 'env'"
            ));
        }
        file.rpc_timeout_ms =
            self.milliseconds("tool_timeout_sec", 1000.0).or_else(|| self.milliseconds("timeout", 1.0));
        file.spawn_timeout_ms = self
            .milliseconds("startup_timeout_sec", 1000.0)
            .or_else(|| self.milliseconds("startup_timeout_ms", 1.0));
    }

    /// Reads a duration in the client's `unit` and converts it to milliseconds. Returns `None` if it is out of range.
    fn milliseconds(&self, key: &str, unit: f64) -> Option<u64> {
        let wanted = self.entry.get(key)?.as_f64()? * unit;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range is checked")]
        (1.0..1e12).contains(&wanted).then_some(wanted as u64)
    }

    /// Reads the program, which is a string with `args`, a list, or an object with a path.
    fn command(&mut self) -> Result<Option<CommandLine>, String> {
        let mut command = match self.entry.get("command") {
            None | Some(Value::Null) => return Ok(None),
            Some(Value::String(program)) => {
                CommandLine { cmd: self.variables(program), args: self.list("args")?, env: BTreeMap::new() }
            }
            Some(Value::Array(_)) => {
                let mut words = self.list("command")?;
                if words.is_empty() {
                    return Err("its 'command' is empty".to_owned());
                }
                CommandLine { cmd: words.remove(0), args: words, env: BTreeMap::new() }
            }
            Some(Value::Object(object)) => {
                let mut inner = Reader { entry: object, context: self.context, notes: Vec::new() };
                let program = inner.text("path")?.or(inner.text("cmd")?);
                let program = program.ok_or("its 'command' names no program")?;
                let command =
                    CommandLine { cmd: program, args: inner.list("args")?, env: inner.texts("env")? };
                self.notes.append(&mut inner.notes);
                command
            }
            Some(_) => return Err("its 'command' is not a string".to_owned()),
        };
        command.env.extend(self.texts("env")?);
        // Codex passes environment variables through that are listed by name.
        if let Some(Value::Array(names)) = self.entry.get("env_vars") {
            for name in names.iter().filter_map(Value::as_str) {
                command.env.insert(name.to_owned(), format!("${{{name}:-}}"));
            }
        }
        Ok(Some(command))
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(self.variables(text))),
            Some(_) => Err(format!("its '{key}' is not a string")),
        }
    }

    fn list(&mut self, key: &str) -> Result<Vec<String>, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(values)) => values
                .iter()
                .map(|value| match value {
                    Value::String(text) => Ok(self.variables(text)),
                    Value::Number(number) => Ok(number.to_string()),
                    _ => Err(format!("its '{key}' contains something that is not a string")),
                })
                .collect(),
            Some(_) => Err(format!("its '{key}' is not a list")),
        }
    }

    fn texts(&mut self, key: &str) -> Result<BTreeMap<String, String>, String> {
        match self.entry.get(key) {
            None | Some(Value::Null) => Ok(BTreeMap::new()),
            Some(Value::Object(values)) => values
                .iter()
                .map(|(name, value)| match value {
                    Value::String(text) => Ok((name.clone(), self.variables(text))),
                    Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
                    _ => Err(format!("its '{key}.{}' is not a string", name.escape_debug())),
                })
                .collect(),
            Some(_) => Err(format!("its '{key}' is not an object")),
        }
    }

    /// Rewrites the client's variable syntax into `${VAR}`.
    fn variables(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            out.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            if let Some((inside, after)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
                out.push_str(&self.variable(inside));
                rest = after;
                continue;
            }
            let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            if self.context.client == Some(Client::Gemini) && is_variable(&rest[..len]) {
                out.extend(["${", &rest[..len], "}"]);
                rest = &rest[len..];
            } else {
                out.push('$');
            }
        }
        out.push_str(rest);
        out
    }

    fn variable(&mut self, inside: &str) -> String {
        if let Some(name) = inside.strip_prefix("env:") {
            return format!("${{{name}}}");
        }
        if let Some(input) = inside.strip_prefix("input:") {
            let name: String = input
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
                .collect();
            self.notes.push(format!("its input '{input}' is not supported; set the variable {name} instead"));
            return format!("${{{name}}}");
        }
        match inside {
            "workspaceFolder" | "workspaceRoot" => self.context.workspace.display().to_string(),
            "userHome" => "${HOME}".to_owned(),
            _ => format!("${{{inside}}}"),
        }
    }
}
