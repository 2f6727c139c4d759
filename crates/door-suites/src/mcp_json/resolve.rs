//! From what a file says to what is started or reached.

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

/// Most arguments, variables or headers: more than any server needs, and few enough to be shown.
const MOST_ENTRIES: usize = 256;

/// What a file's words are read by.
pub(crate) struct Surroundings<'s> {
    /// The file itself.
    pub(crate) file: &'s Path,
    /// Its folder, relative to the workspace.
    pub(crate) folder: &'s str,
    /// The settings.
    pub(crate) config: &'s Config,
    /// The variables.
    pub(crate) lookup: Lookup<'s>,
}

/// A child of this name, as its file and the settings describe it.
pub(crate) fn spec_of(
    name: String,
    file: McpFile,
    around: &Surroundings<'_>,
) -> Result<ChildSpec, SuiteError> {
    let (template, launch, unready) = resolve(&file, around)?;
    let settings = around.config.suite(&name).cloned().unwrap_or_default();
    let default = Limits::default();
    let idle = settings.idle_ms.or(file.idle_ms).map(|ms| (ms > 0).then(|| Duration::from_millis(ms)));
    let rpc = settings.rpc_timeout_ms.or(file.rpc_timeout_ms).unwrap_or(around.config.timeouts.rpc_ms);
    if rpc == 0 {
        return Err(field("rpcTimeoutMs", "is 0, but must be at least 1"));
    }
    let own = settings.spawn_timeout_ms.or(file.spawn_timeout_ms);
    if own == Some(0) {
        return Err(field("spawnTimeoutMs", "is 0, but must be at least 1"));
    }
    let timeouts = &around.config.timeouts;
    let spawn = own.unwrap_or(timeouts.child_spawn_ms);
    let limits = Limits {
        spawn: Duration::from_millis(spawn),
        // Who gave a time for this server meant it, also where something is downloaded.
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
        file: around.file.to_owned(),
        launch,
        unready,
        limits,
        expose,
        template,
    })
}

/// How the child is reached: as written, and with every variable replaced; and what keeps it from being started, where a
/// variable is not set.
fn resolve(
    file: &McpFile,
    around: &Surroundings<'_>,
) -> Result<(LaunchTemplate, Launch, Option<String>), SuiteError> {
    let template = launch_template_of(file, around.folder)?;
    let unready = RefCell::new(None);
    let value = |name: &str, text: &str| {
        let value = match expand(text, around.lookup) {
            Ok(value) => value,
            Err(error @ ExpandError::Unset { .. }) => {
                let reason = field(name, &error.to_string()).to_string();
                unready.borrow_mut().get_or_insert(reason);
                return Ok(text.to_owned());
            }
            Err(error) => return Err(field(name, &error.to_string())),
        };
        if value.contains('\0') {
            return Err(field(name, "holds a NUL character once its variables are replaced"));
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
        let folder = around.file.parent().unwrap_or(around.file);
        let cwd = match &file.cwd {
            Some(cwd) => tidy(&folder.join(value("cwd", cwd)?)),
            None => folder.to_owned(),
        };
        let command = value("command", command)?;
        // A program that is named by a path is meant relative to where it starts.
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
            return Err(field(
                &format!("headers.{name}"),
                "is no header value once its variables are replaced",
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

/// What the file says of how the child is reached, once it is known to make sense.
///
/// Characters that cannot be seen are refused: what a person trusts has to be what they were shown.
pub(crate) fn launch_template_of(file: &McpFile, folder: &str) -> Result<LaunchTemplate, SuiteError> {
    let transport = match (&file.command, &file.url, file.transport) {
        (Some(_), Some(_), _) => return Err(field("url", "stands beside 'command'; keep one of the two")),
        (None, None, _) => {
            return Err(field("command", "is missing, and so is 'url'; one of the two is needed"));
        }
        (Some(_), None, None | Some(TransportKind::Stdio)) => TransportKind::Stdio,
        (Some(_), None, Some(other)) => {
            return Err(field(
                "type",
                &format!("is '{}', which needs 'url' instead of 'command'", other.as_str()),
            ));
        }
        (None, Some(_), Some(TransportKind::Stdio)) => {
            return Err(field("type", "is 'stdio', which needs 'command' instead of 'url'"));
        }
        (None, Some(_), other) => other.unwrap_or(TransportKind::Http),
    };
    let mut template =
        LaunchTemplate { transport: transport.as_str().to_owned(), ..LaunchTemplate::default() };
    if let Some(command) = &file.command {
        visible("command", &command.cmd)?;
        if command.cmd.trim().is_empty() {
            return Err(field("command", "is empty; name the program"));
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
                return Err(field(key, "is for programs that are started, not for a server with a 'url'"));
            }
        }
        if let Some(url) = file.url.as_deref().filter(|url| !url.contains("${")) {
            check_url(url, transport)?;
        }
        template.url.clone_from(&file.url);
        template.headers.clone_from(&file.headers);
    }
    for (at, arg) in template.args.iter().enumerate() {
        visible(&format!("args[{at}]"), arg)?;
    }
    for (name, value) in &template.env {
        if !is_variable(name) {
            return Err(field(&format!("env.{}", name.escape_debug()), "is not a variable's name"));
        }
        // Keys and certificates have several lines.
        visible(&format!("env.{name}"), &value.replace(['\n', '\t'], " "))?;
    }
    for (name, value) in &template.headers {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(field(&format!("headers.{}", name.escape_debug()), "is not a header's name"));
        }
        visible(&format!("headers.{name}"), value)?;
    }
    visible("cwd", template.cwd.as_deref().unwrap_or_default())?;
    visible("url", template.url.as_deref().unwrap_or_default())?;
    for (name, count) in
        [("args", template.args.len()), ("env", template.env.len()), ("headers", template.headers.len())]
    {
        if count > MOST_ENTRIES {
            return Err(field(name, &format!("has {count} entries, more than the {MOST_ENTRIES} allowed")));
        }
    }
    Ok(template)
}

fn visible(name: &str, text: &str) -> Result<(), SuiteError> {
    match text.chars().find(|c| c.is_control() || switchboard_core::is_hidden(*c)) {
        Some(c) => {
            Err(field(name, &format!("holds the character '{}', which cannot be seen", c.escape_unicode())))
        }
        None => Ok(()),
    }
}

fn check_url(text: &str, transport: TransportKind) -> Result<(), SuiteError> {
    let schemes: &[&str] = if transport == TransportKind::Ws { &["ws", "wss"] } else { &["http", "https"] };
    let wanted = || format!("has to begin with {}://", schemes.join(":// or "));
    match Url::parse(text) {
        Ok(url) if schemes.contains(&url.scheme()) && url.has_host() => Ok(()),
        Ok(_) => Err(field("url", &wanted())),
        Err(error) => Err(field("url", &format!("is no address: {error}; it {}", wanted()))),
    }
}

/// A path without `.` and without `..` that follows a name. Nothing is looked up.
fn tidy(path: &Path) -> std::path::PathBuf {
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

fn field(field: &str, problem: &str) -> SuiteError {
    SuiteError::Field { field: field.to_owned(), problem: problem.to_owned() }
}
