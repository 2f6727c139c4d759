//! Edits of JSON settings that preserve comments and order.
//!
//! All functions return the new text, or `None` if nothing changes.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstObjectProp, CstRootNode};
use serde_json::{Value, json};

use super::entries::{AGENT, Entries, SERVER, is_missing, is_ours, is_program, program_of};
use crate::commands::hook::Client;

/// Key of the client's MCP servers.
const SERVERS: &str = "mcpServers";

/// Key of the client's hooks.
const HOOKS: &str = "hooks";

/// Returns the name of the agent that the entry of our server sets.
pub(super) fn agent(text: &str) -> Result<Option<String>, String> {
    let (_, root) = parse(text)?;
    let server = root.object_value(SERVERS).and_then(|servers| servers.object_value(SERVER));
    let env = server.filter(is_our_server).and_then(|server| server.object_value("env"));
    let agent = env.and_then(|env| env.get(AGENT)).and_then(|prop| prop.value());
    Ok(agent.and_then(|agent| agent.as_string_lit()?.decoded_value().ok()))
}

/// Lists the paths of the `switchboard` program in the client's entries for the server and the hooks.
pub(super) fn programs(text: &str, client: Client) -> Result<Vec<String>, String> {
    let (_, root) = parse(text)?;
    let server = root.object_value(SERVERS).and_then(|servers| servers.object_value(SERVER));
    let mut programs: Vec<String> =
        server.filter(is_our_server).as_ref().and_then(command).into_iter().collect();
    for event in root.object_value(HOOKS).iter().flat_map(CstObject::properties) {
        let hooks = event.array_value().map(|groups| list_own_hooks(&groups, client)).unwrap_or_default();
        programs.extend(hooks.iter().filter_map(|hook| program_of(hook["command"].as_str()?, client)));
    }
    Ok(programs)
}

/// Adds our server to the settings.
///
/// An existing entry of ours is left unchanged, except for the agent's name if this command line gives one, and for a
/// program that no longer exists.
pub(super) fn add_server(text: &str, entries: &Entries) -> Result<Option<String>, String> {
    let (cst, root) = parse(text)?;
    let servers = root.object_value_or_create(SERVERS).ok_or(format!("'{SERVERS}' is no object"))?;
    require_once(&servers, SERVER)?;
    let Some(existing) = servers.get(SERVER) else {
        let mut env = json!({});
        if let Some(agent) = &entries.agent {
            env[AGENT] = agent.as_str().into();
        }
        let program = entries.program.display().to_string();
        let server = json!({ "type": "stdio", "command": program, "args": ["mcp"], "env": env });
        servers.append(SERVER, input(&server));
        return Ok(Some(cst.to_string()));
    };
    let Some(server) = existing.object_value().filter(is_our_server) else {
        return Err(format!("'{SERVERS}.{SERVER}' is another server; rename it first"));
    };
    let program = entries.program.display().to_string();
    let mut is_changed = false;
    if command(&server).is_some_and(|command| command != program && is_missing(&command)) {
        server.get("command").into_iter().for_each(|prop| prop.set_value(program.as_str().into()));
        is_changed = true;
    }
    if let Some(agent) = &entries.agent {
        let no_object = || format!("'{SERVERS}.{SERVER}.env' is no object");
        let env = server.object_value_or_create("env").ok_or_else(no_object)?;
        let known = env.get(AGENT).map(|prop| (prop.value().as_ref().and_then(string), prop));
        match known {
            None => {
                env.append(AGENT, agent.as_str().into());
                is_changed = true;
            }
            Some((known, prop)) if entries.renames && known.as_ref() != Some(agent) => {
                prop.set_value(agent.as_str().into());
                is_changed = true;
            }
            Some(_) => {}
        }
    }
    Ok(is_changed.then(|| cst.to_string()))
}

/// Removes our server.
pub(super) fn remove_server(text: &str) -> Result<Option<String>, String> {
    let (cst, root) = parse(text)?;
    let Some(servers) = root.object_value(SERVERS) else { return Ok(None) };
    let Some(ours) =
        servers.get(SERVER).filter(|prop| prop.object_value().is_some_and(|s| is_our_server(&s)))
    else {
        return Ok(None);
    };
    ours.remove();
    if servers.properties().is_empty() {
        root.get(SERVERS).into_iter().for_each(CstObjectProp::remove);
    }
    Ok(Some(cst.to_string()))
}

/// Adds our hooks, and replaces outdated ones.
pub(super) fn add_hooks(text: &str, entries: &Entries) -> Result<Option<String>, String> {
    let (cst, root) = parse(text)?;
    let hooks = root.object_value_or_create(HOOKS).ok_or(format!("'{HOOKS}' is no object"))?;
    let mut is_changed = false;
    for (event, wanted) in entries.hooks() {
        require_once(&hooks, event)?;
        let groups = hooks.array_value_or_create(event).ok_or(format!("'{HOOKS}.{event}' is no list"))?;
        if list_own_hooks(&groups, entries.client) == wanted {
            continue;
        }
        remove_groups(&groups, entries.client);
        groups.append(input(&json!({ "hooks": wanted })));
        is_changed = true;
    }
    Ok(is_changed.then(|| cst.to_string()))
}

/// Removes our hooks, and objects that become empty.
pub(super) fn remove_hooks(text: &str, client: Client) -> Result<Option<String>, String> {
    let (cst, root) = parse(text)?;
    let Some(hooks) = root.object_value(HOOKS) else { return Ok(None) };
    let mut is_changed = false;
    for event in hooks.properties() {
        let Some(groups) = event.array_value().filter(|groups| !list_own_hooks(groups, client).is_empty())
        else {
            continue;
        };
        remove_groups(&groups, client);
        if groups.elements().is_empty() {
            event.remove();
        }
        is_changed = true;
    }
    if is_changed && hooks.properties().is_empty() {
        root.get(HOOKS).into_iter().for_each(CstObjectProp::remove);
    }
    Ok(is_changed.then(|| cst.to_string()))
}

/// Parses the text into a tree and its root object. An empty file counts as an empty object.
fn parse(text: &str) -> Result<(CstRootNode, CstObject), String> {
    // Accept what clients accept: comments and trailing commas, but no other deviation from JSON.
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
    };
    let cst = CstRootNode::parse(text, &options).map_err(|error| format!("is no JSON: {error}"))?;
    let root = match cst.value() {
        None => cst.object_value_or_set(),
        Some(_) => cst.object_value().ok_or("holds no object")?,
    };
    require_once(&root, SERVERS)?;
    require_once(&root, HOOKS)?;
    Ok((cst, root))
}

/// Lists our hooks in the hook groups of an event.
fn list_own_hooks(groups: &CstArray, client: Client) -> Vec<Value> {
    let hooks = groups.elements().into_iter().filter_map(|group| group.as_object()?.array_value(HOOKS));
    let hooks = hooks.flat_map(|hooks| hooks.elements());
    hooks.filter(|hook| is_our_hook(hook, client)).filter_map(|hook| hook.to_serde_value()).collect()
}

/// Removes our hooks from the hook groups of an event, and groups that become empty.
fn remove_groups(groups: &CstArray, client: Client) {
    for group in groups.elements() {
        let Some(hooks) = group.as_object().and_then(|group| group.array_value(HOOKS)) else { continue };
        let (ours, others): (Vec<_>, Vec<_>) =
            hooks.elements().into_iter().partition(|hook| is_our_hook(hook, client));
        if ours.is_empty() {
            continue;
        }
        if others.is_empty() {
            group.remove();
        } else {
            ours.into_iter().for_each(CstNode::remove);
        }
    }
}

fn is_our_hook(hook: &CstNode, client: Client) -> bool {
    let command = hook.as_object().and_then(|hook| command(&hook));
    command.is_some_and(|command| is_ours(&command, client))
}

fn is_our_server(server: &CstObject) -> bool {
    let first = server.array_value("args").and_then(|args| args.elements().into_iter().next());
    let verb = first.as_ref().and_then(string);
    command(server).is_some_and(|program| is_program(&program)) && verb.as_deref() == Some("mcp")
}

/// Returns the command of a server entry.
fn command(server: &CstObject) -> Option<String> {
    string(&server.get("command")?.value()?)
}

fn string(node: &CstNode) -> Option<String> {
    node.as_string_lit()?.decoded_value().ok()
}

/// Rejects a duplicate key: readers use the last one, so an edit of the first would have no effect.
fn require_once(object: &CstObject, key: &str) -> Result<(), String> {
    let is_key =
        |prop: &CstObjectProp| prop.name().and_then(|name| name.decoded_value().ok()).as_deref() == Some(key);
    if object.properties().iter().filter(|prop| is_key(prop)).count() > 1 {
        return Err(format!("has '{key}' twice; clients read the last one and nothing of the other"));
    }
    Ok(())
}

/// Converts a JSON value into an input of the syntax tree.
fn input(value: &Value) -> CstInputValue {
    match value {
        Value::Null => CstInputValue::Null,
        Value::Bool(bool) => CstInputValue::Bool(*bool),
        Value::Number(number) => CstInputValue::Number(number.to_string()),
        Value::String(text) => CstInputValue::String(text.clone()),
        Value::Array(values) => CstInputValue::Array(values.iter().map(input).collect()),
        Value::Object(fields) => {
            CstInputValue::Object(fields.iter().map(|(key, value)| (key.clone(), input(value))).collect())
        }
    }
}

#[cfg(test)]
#[path = "json_tests.rs"]
mod tests;
