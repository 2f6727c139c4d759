//! Edits of Codex's TOML settings, except for the hooks.
//!
//! All functions return the new text, or `None` if nothing changes.

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

use super::entries::{AGENT, Entries, SERVER, is_missing, is_program};

/// Key of Codex's MCP servers in its settings.
const SERVERS: &str = "mcp_servers";

/// Seconds that Codex waits for the server to start. It starts within milliseconds, but the machine may be waking up.
const START_SECONDS: i64 = 20;

/// Seconds that Codex waits for a tool call: `wait_for_message` blocks on purpose.
const TOOL_SECONDS: i64 = 600;

/// Returns the name of the agent that the entry of our server sets.
pub(super) fn agent(text: &str) -> Result<Option<String>, String> {
    let document = parse(text)?;
    let server = server(&document).filter(|server| is_our_server(*server));
    let env = server.and_then(|server| server.get("env")).and_then(Item::as_table_like);
    Ok(env.and_then(|env| env.get(AGENT)).and_then(Item::as_str).map(str::to_owned))
}

/// Returns the program in the entry of our server.
pub(super) fn program(text: &str) -> Result<Option<String>, String> {
    let document = parse(text)?;
    let server = server(&document).filter(|server| is_our_server(*server));
    Ok(server.and_then(|server| server.get("command")).and_then(Item::as_str).map(str::to_owned))
}

/// Adds our server to the settings.
///
/// An existing entry of ours is left unchanged, except for the agent's name if this command line gives one, and for a
/// program that no longer exists.
pub(super) fn add_server(text: &str, entries: &Entries) -> Result<Option<String>, String> {
    let mut document = parse(text)?;
    if let Some(existing) = server(&document) {
        if !is_our_server(existing) {
            return Err(format!("'{SERVERS}.{SERVER}' is another server; rename it first"));
        }
        let program = entries.program.display().to_string();
        let command = existing.get("command").and_then(Item::as_str);
        let is_missing = command.is_some_and(|command| command != program && is_missing(command));
        let env = existing.get("env").and_then(Item::as_table_like);
        let known = env.and_then(|env| env.get(AGENT)).and_then(Item::as_str);
        let name = entries.agent.as_ref();
        let name = name.filter(|name| known.is_none_or(|known| entries.renames && known != name.as_str()));
        if !is_missing && name.is_none() {
            return Ok(None);
        }
        let server = document.get_mut(SERVERS).and_then(|servers| servers.get_mut(SERVER));
        let server = server.ok_or("cannot be changed")?;
        if is_missing {
            server["command"] = value(program);
        }
        if let Some(name) = name {
            let env = &mut server["env"];
            if env.is_none() {
                *env = value(toml_edit::InlineTable::new());
            }
            let env = env.as_table_like_mut().ok_or(format!("'{SERVERS}.{SERVER}.env' is no table"))?;
            env.insert(AGENT, value(name.as_str()));
        }
        return Ok(Some(document.to_string()));
    }
    let servers = document.entry(SERVERS).or_insert_with(|| {
        let mut table = Table::new();
        table.set_implicit(true);
        Item::Table(table)
    });
    let servers = servers.as_table_like_mut().ok_or(format!("'{SERVERS}' is no table"))?;
    let mut server = Table::new();
    server.insert("command", value(entries.program.display().to_string()));
    server.insert("args", value(Array::from_iter(["mcp"])));
    server.insert("startup_timeout_sec", value(START_SECONDS));
    server.insert("tool_timeout_sec", value(TOOL_SECONDS));
    if let Some(agent) = &entries.agent {
        let mut env = toml_edit::InlineTable::new();
        env.insert(AGENT, agent.as_str().into());
        server.insert("env", value(env));
    }
    servers.insert(SERVER, Item::Table(server));
    Ok(Some(document.to_string()))
}

/// Removes our server.
pub(super) fn remove_server(text: &str) -> Result<Option<String>, String> {
    let mut document = parse(text)?;
    if !server(&document).is_some_and(is_our_server) {
        return Ok(None);
    }
    let Some(servers) = document.get_mut(SERVERS).and_then(Item::as_table_like_mut) else { return Ok(None) };
    servers.remove(SERVER);
    if servers.is_empty() {
        document.remove(SERVERS);
    }
    Ok(Some(document.to_string()))
}

fn parse(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| format!("is no TOML: {}", error.message()))
}

fn server(document: &DocumentMut) -> Option<&dyn TableLike> {
    document.get(SERVERS)?.as_table_like()?.get(SERVER)?.as_table_like()
}

fn is_our_server(server: &dyn TableLike) -> bool {
    let program = server.get("command").and_then(Item::as_str);
    let verb = server.get("args").and_then(Item::as_array).and_then(|args| args.get(0)?.as_str());
    program.is_some_and(is_program) && verb == Some("mcp")
}

#[cfg(test)]
#[path = "toml_tests.rs"]
mod tests;
