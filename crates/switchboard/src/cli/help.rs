//! Layout of the help texts: groups of verbs, examples, and one line for the global options.

use std::fmt::Write;

use clap::{Command, CommandFactory};

use super::Cli;

/// The visible verbs under their headings, in the order that `switchboard --help` shows.
pub(super) const GROUPS: [(&str, &[&str]); 7] = [
    ("Talk", &["send", "inbox", "wait", "ack", "receipt", "thread", "search", "tail", "channel", "watch"]),
    ("See", &["who", "agents", "route"]),
    ("Work", &["claim", "renew", "release", "reserve", "guard", "team", "workflow"]),
    ("Tools", &["suite"]),
    ("Run agents", &["run", "worker", "router"]),
    ("Other owners", &["swarm"]),
    (
        "Setup",
        &[
            "init",
            "install",
            "uninstall",
            "mcp",
            "serve",
            "hook",
            "doctor",
            "audit",
            "adopt",
            "resume",
            "completions",
        ],
    ),
];

/// Line about the global options that ends the help of a verb.
const GLOBAL_OPTIONS: &str =
    "Global options: --json, --from NAME, --workspace FOLDER, -v (see `switchboard --help`)";

/// Line about the global options for a verb with its own option `--from`.
const OTHER_GLOBAL_OPTIONS: &str =
    "Global options: --json, --workspace FOLDER, -v (see `switchboard --help`)";

/// Ids of the global options, which only the top-level help explains.
const GLOBAL_IDS: [&str; 4] = ["json", "from", "workspace", "verbose"];

/// The examples of a verb, for the end of its long help: command lines without a prompt.
macro_rules! examples {
    ($($line:literal),+ $(,)?) => { concat!("Examples:" $(, "\n  ", $line)+) };
}
pub(crate) use examples;

/// Builds the whole command line, with the verbs grouped in the help.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let template = template(&command);
    command.help_template(template)
}

/// Builds the template of the top-level help from the descriptions of the verbs.
fn template(command: &Command) -> String {
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let width = command.get_subcommands().map(|verb| verb.get_name().len()).max().unwrap_or(0);
    let mut text = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (heading, verbs) in GROUPS {
        let _ = write!(text, "\n{header}{heading}:{header:#}\n");
        for verb in verbs.iter().filter_map(|name| command.find_subcommand(name)) {
            let name = verb.get_name();
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {literal}{name:width$}{literal:#}  {about}");
        }
    }
    let _ = write!(text, "\n{header}Global options:{header:#}\n{{options}}{{after-help}}");
    text
}

/// Adds the arguments to a verb, and completes the help of the verb and its sub-verbs.
///
/// The list of verbs shows the verb's one-sentence description; `--help` of the verb shows the longer text of the
/// arguments.
pub(super) fn describe(verb: Command, augment: fn(Command) -> Command) -> Command {
    let about = verb.get_about().cloned();
    let verb = augment(verb.about(None));
    let verb = if let Some(about) = about { verb.about(about) } else { verb };
    let verb = verb.mut_args(|arg| {
        let is_global = arg.is_global_set() && GLOBAL_IDS.contains(&arg.get_id().as_str());
        if is_global { arg.hide_short_help(true).hide_long_help(true) } else { arg }
    });
    add_footer(verb)
}

/// Appends the footer about global options to the help of a command and of its subcommands.
fn add_footer(verb: Command) -> Command {
    let examples = verb.get_after_long_help().map(|examples| format!("{examples}\n\n")).unwrap_or_default();
    let own_from = verb.get_arguments().any(|arg| arg.get_long() == Some("from") && !arg.is_global_set());
    let footer = if own_from { OTHER_GLOBAL_OPTIONS } else { GLOBAL_OPTIONS };
    verb.after_help(footer).after_long_help(format!("{examples}{footer}")).mut_subcommands(add_footer)
}
