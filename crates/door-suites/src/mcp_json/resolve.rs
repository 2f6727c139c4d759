//! Resolves a child's file and settings into a [`ChildSpec`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use reqwest::Url;

use super::{McpFile, TransportKind};
use crate::config::{Config, ExposeMode};
use crate::error::SuiteError;
use crate::expand::{ExpandError, Lookup, expand, is_variable};
use crate::spec::{ChildSpec, Expose, Launch, LaunchTemplate, Limits};

/// Maximum number of arguments, variables or headers. No real server needs more, and a person can still review this
/// many.
const MAX_ENTRIES: usize = 256;

/// Inputs for resolving a child's file.
pub(crate) struct ResolveContext<'s> {
    /// Path of the file.
    pub(crate) file: &'s Path,
    /// Folder of the file, relative to the workspace.
    pub(crate) folder: &'s str,
    /// Suite settings.
    pub(crate) config: &'s Config,
    /// Variable lookup.
    pub(crate) lookup: Lookup<'s>,
}

/// Resolves a child's spec from the child's file and the settings.
pub(crate) fn resolve_spec(
    name: String,
    file: McpFile,
    context: &ResolveContext<'_>,
) -> Result<ChildSpec, SuiteError> {
    let (template, launch, unready) = resolve(&file, context)?;
    let settings = context.config.suite(&name).cloned().unwrap_or_default();
    let default = Limits::default();
    let idle = settings.idle_ms.or(file.idle_ms).map(|ms| (ms > 0).then(|| Duration::from_millis(ms)));
    let rpc = settings.rpc_timeout_ms.or(file.rpc_timeout_ms).unwrap_or(context.config.timeouts.rpc_ms);
    if rpc == 0 {
        return Err(field_error("rpcTimeoutMs", "is 0, but must be at least 1"));
    }
    let own = settings.spawn_timeout_ms.or(file.spawn_timeout_ms);
    if own == Some(0) {
        return Err(field_error("spawnTimeoutMs", "is 0, but must be at least 1"));
    }
    let timeouts = &context.config.timeouts;
    let spawn = own.unwrap_or(timeouts.child_spawn_ms);
    let limits = Limits {
        spawn: Duration::from_millis(spawn),
        // An explicit start timeout also applies to a server that is downloaded first.
        fetch: Duration::from_millis(own.unwrap_or(timeouts.rpc_ms.max(spawn))),
        rpc: Duration::from_millis(rpc),
        idle: idle.unwrap_or(default.idle),
        concurrency: settings.concurrency.unwrap_or(default.concurrency),
    };
    let expose = match settings.expose.mode {
        ExposeMode::Suite => Expose::Suite,
        ExposeMode::Flat => Expose::Flat { bare: settings.expose.bare },
    };
    Ok(ChildSpec {
        name,
        description: file.description,
        switchboard_description: file.switchboard_description,
        file: context.file.to_owned(),
        launch,
        unready,
        limits,
        expose,
        template,
    })
}

/// Returns the launch template, the expanded launch settings, and the reason if an unset variable prevents a start.
fn resolve(
    file: &McpFile,
    context: &ResolveContext<'_>,
) -> Result<(LaunchTemplate, Launch, Option<String>), SuiteError> {
    let template = launch_template_of(file, context.folder)?;
    let unready = RefCell::new(None);
    let value = |name: &str, text: &str| {
        let value = match expand(text, context.lookup) {
            Ok(value) => value,
            Err(error @ ExpandError::Unset { .. }) => {
                let reason = field_error(name, &error.to_string()).to_string();
                unready.borrow_mut().get_or_insert(reason);
                return Ok(text.to_owned());
            }
            Err(error) => return Err(field_error(name, &error.to_string())),
        };
        if value.contains('\0') {
            return Err(field_error(name, "contains a NUL character after expanding its variables"));
        }
        Ok(value)
    };
    let values = |of: &str, map: &BTreeMap<String, String>| {
        let entries = map.iter().map(|(key, text)| Ok((key.clone(), value(&format!("{of}.{key}"), text)?)));
        entries.collect::<Result<BTreeMap<_, _>, SuiteError>>()
    };
    if let Some(command) = &template.command {
        let args = template.args.iter().enumerate();
        let args = args.map(|(at, arg)| value(&format!("args[{at}]"), arg)).collect::<Result<Vec<_>, _>>()?;
        let folder = context.file.parent().unwrap_or(context.file);
        let cwd = match &file.cwd {
            Some(cwd) => normalize_path(&folder.join(value("cwd", cwd)?)),
            None => folder.to_owned(),
        };
        let command = value("command", command)?;
        // Resolve a program given as a relative path against the working directory.
        let is_relative = Path::new(&command).is_relative() && command.contains('/');
        let command = if is_relative { cwd.join(&command).to_string_lossy().into_owned() } else { command };
        let env = values("env", &template.env)?;
        let framing = file.framing.unwrap_or_default();
        return Ok((template, Launch::Stdio { command, args, env, cwd, framing }, unready.take()));
    }
    let url = value("url", template.url.as_deref().unwrap_or_default())?;
    let headers = values("headers", &template.headers)?;
    let unready = unready.take();
    for (name, text) in &headers {
        if http::HeaderValue::from_str(text).is_err() {
            return Err(field_error(
                &format!("headers.{name}"),
                "is not a valid header value after expanding its variables",
            ));
        }
    }
    let transport = file.transport.unwrap_or(TransportKind::Http);
    if unready.is_none() {
        check_url(&url, transport)?;
    }
    let launch = match transport {
        TransportKind::Sse => Launch::Sse { url, headers },
        TransportKind::Ws => Launch::Ws { url, headers },
        TransportKind::Stdio | TransportKind::Http => Launch::Http { url, headers },
    };
    Ok((template, launch, unready))
}

/// Validates the file and returns its launch template.
///
/// Invisible characters are rejected, because a person must see exactly what they trust.
pub(crate) fn launch_template_of(file: &McpFile, folder: &str) -> Result<LaunchTemplate, SuiteError> {
    let transport = match (&file.command, &file.url, file.transport) {
        (Some(_), Some(_), _) => {
            return Err(field_error("url", "and 'command' exclude each other; remove one of them"));
        }
        (None, None, _) => {
            return Err(field_error("command", "is missing, and so is 'url'; one of the two is needed"));
        }
        (Some(_), None, None | Some(TransportKind::Stdio)) => TransportKind::Stdio,
        (Some(_), None, Some(other)) => {
            return Err(field_error(
                "type",
                &format!("is '{}', which needs 'url' instead of 'command'", other.as_str()),
            ));
        }
        (None, Some(_), Some(TransportKind::Stdio)) => {
            return Err(field_error("type", "is 'stdio', which needs 'command' instead of 'url'"));
        }
        (None, Some(_), other) => other.unwrap_or(TransportKind::Http),
    };
    let mut template =
        LaunchTemplate { transport: transport.as_str().to_owned(), ..LaunchTemplate::default() };
    if let Some(command) = &file.command {
        check_visible("command", &command.cmd)?;
        if command.cmd.trim().is_empty() {
            return Err(field_error("command", "is empty; name the program"));
        }
        template.command = Some(command.cmd.clone());
        template.args = command.args.iter().chain(&file.args).cloned().collect();
        template.env = file.env.iter().chain(&command.env).map(|(k, v)| (k.clone(), v.clone())).collect();
        template.cwd = Some(file.cwd.clone().unwrap_or_else(|| folder.to_owned()));
        template.framing = file.framing;
    } else {
        for (key, is_there) in [
            ("args", !file.args.is_empty()),
            ("env", !file.env.is_empty()),
            ("cwd", file.cwd.is_some()),
            ("framing", file.framing.is_some()),
        ] {
            if is_there {
                return Err(field_error(key, "applies to programs only, not to a server with a 'url'"));
            }
        }
        if let Some(url) = file.url.as_deref().filter(|url| !url.contains("${")) {
            check_url(url, transport)?;
        }
        template.url.clone_from(&file.url);
        template.headers.clone_from(&file.headers);
    }
    for (at, arg) in template.args.iter().enumerate() {
        check_visible(&format!("args[{at}]"), arg)?;
    }
    for (name, value) in &template.env {
        if !is_variable(name) {
            return Err(field_error(&format!("env.{}", name.escape_debug()), "is not a valid variable name"));
        }
        // Line breaks and tabs are allowed here, because keys and certificates span several lines.
        check_visible(&format!("env.{name}"), &value.replace(['\n', '\t'], " "))?;
    }
    for (name, value) in &template.headers {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(field_error(
                &format!("headers.{}", name.escape_debug()),
                "is not a valid header name",
            ));
        }
        check_visible(&format!("headers.{name}"), value)?;
    }
    check_visible("cwd", template.cwd.as_deref().unwrap_or_default())?;
    check_visible("url", template.url.as_deref().unwrap_or_default())?;
    for (name, count) in
        [("args", template.args.len()), ("env", template.env.len()), ("headers", template.headers.len())]
    {
        if count > MAX_ENTRIES {
            return Err(field_error(
                name,
                &format!("has {count} entries, more than the {MAX_ENTRIES} allowed"),
            ));
        }
    }
    Ok(template)
}

fn check_visible(name: &str, text: &str) -> Result<(), SuiteError> {
    match text.chars().find(|c| c.is_control() || switchboard_core::is_hidden(*c)) {
        Some(c) => {
            Err(field_error(name, &format!("contains the invisible character '{}'", c.escape_unicode())))
        }
        None => Ok(()),
    }
}

fn check_url(text: &str, transport: TransportKind) -> Result<(), SuiteError> {
    let schemes: &[&str] = if transport == TransportKind::Ws { &["ws", "wss"] } else { &["http", "https"] };
    let wanted = || format!("must begin with {}://", schemes.join(":// or "));
    match Url::parse(text) {
        Ok(url) if schemes.contains(&url.scheme()) && url.has_host() => Ok(()),
        Ok(_) => Err(field_error("url", &wanted())),
        Err(error) => Err(field_error("url", &format!("is not a valid URL: {error}; it {}", wanted()))),
    }
}

/// Normalizes a path lexically, without accessing the disk: removes `.`, and resolves `..` after a name.
fn normalize_path(path: &Path) -> std::path::PathBuf {
    use std::path::Component;
    let mut out = std::path::PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(out.components().next_back(), Some(Component::Normal(_))) => {
                out.pop();
            }
            Component::ParentDir if out.has_root() => {}
            part => out.push(part),
        }
    }
    out
}

fn field_error(field: &str, problem: &str) -> SuiteError {
    SuiteError::Field { field: field.to_owned(), problem: problem.to_owned() }
}
