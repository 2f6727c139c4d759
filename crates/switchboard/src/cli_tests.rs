use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command};
use switchboard_actions::{ACTIONS, Action};
use switchboard_tools::{Profile, list_tools};

use super::help::{GROUPS, command};

/// The whole command line with all arguments.
fn built() -> Command {
    let mut command = command();
    command.build();
    command
}

/// All verbs and sub-verbs with their names as typed, without clap's own `help`.
fn verbs(command: &Command, path: &str) -> Vec<(String, Command)> {
    let mut all = Vec::new();
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        let path = format!("{path} {}", verb.get_name());
        all.extend(verbs(verb, &path));
        all.push((path, verb.clone()));
    }
    all
}

fn all_verbs() -> Vec<(String, Command)> {
    verbs(&built(), "switchboard")
}

/// The arguments that a verb defines itself.
fn own_arguments(verb: &Command) -> impl Iterator<Item = &Arg> {
    verb.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str()))
}

/// A command line as a shell splits it, without its comment.
fn split(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote, mut is_word) = (Vec::new(), String::new(), None, false);
    for char in line.chars() {
        match (quote, char) {
            (None, '#' | '>') if !is_word => break,
            (None, ' ') => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (None, '\'' | '"') => (quote, is_word) = (Some(char), true),
            (Some(open), _) if open == char => quote = None,
            _ => {
                word.push(char);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

#[test]
fn visible_verbs_are_in_one_group() {
    let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| verbs.iter().copied()).collect();
    grouped.sort_unstable();
    let command = command();
    let mut visible: Vec<&str> =
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).map(Command::get_name).collect();
    visible.sort_unstable();
    assert_eq!(grouped, visible);
}

#[test]
fn verbs_have_examples_that_parse() {
    for (path, verb) in all_verbs() {
        let help = verb.get_after_long_help().map(ToString::to_string).unwrap_or_default();
        let examples = help.split("\n\n").find_map(|part| part.strip_prefix("Examples:\n"));
        let Some(examples) = examples else { panic!("{path} has no examples") };
        for line in examples.lines() {
            let words = split(line.trim());
            assert!(line.starts_with("  switchboard "), "{path}: {line}");
            let mentions = path.split(' ').all(|part| words.iter().any(|word| word == part));
            assert!(mentions, "{path}: {line} is an example of another verb");
            if let Err(error) = command().try_get_matches_from(&words) {
                panic!("{path}: {line}\n{error}");
            }
        }
    }
}

#[test]
fn abouts_are_one_sentence() {
    for (path, verb) in all_verbs() {
        let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(about.starts_with(|first: char| first.is_ascii_uppercase()), "{path}: '{about}'");
        assert!(!about.contains(". ") && !about.ends_with('.'), "{path}: '{about}'");
        assert!(about.chars().count() <= 100, "{path}: '{about}' is too long");
        let long = verb.get_long_about().map(ToString::to_string).unwrap_or_default();
        assert!(
            long.is_empty() || long.starts_with(&about),
            "{path}: '{about}' is not the start of '{long}'"
        );
    }
}

#[test]
fn options_of_one_name_are_explained_alike() {
    /// Options whose meaning depends on the verb.
    const DIFFER: [&str; 18] = [
        "agent", "all", "artifact", "context", "env", "file", "for", "force", "from", "full", "kind", "name",
        "replace", "role", "since", "timeout", "to", "yes",
    ];
    let mut seen: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (path, verb) in all_verbs() {
        for arg in own_arguments(&verb) {
            let Some(long) = arg.get_long().filter(|long| !DIFFER.contains(long)) else { continue };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help.split(" [default").next().unwrap_or_default().to_owned();
            let text = format!("{:?} {help}", arg.get_value_names().unwrap_or_default());
            let (other, first) = seen.entry(long.to_owned()).or_insert((path.clone(), text.clone()));
            assert_eq!(*first, text, "--{long} of {path} and of {other}");
        }
    }
}

#[test]
fn value_names_use_one_word() {
    for (path, verb) in all_verbs() {
        for arg in own_arguments(&verb).filter(|arg| arg.get_action().takes_values()) {
            for name in arg.get_value_names().unwrap_or_default() {
                let is_odd = ["DIR", "DIRECTORY", "TIME", "S", "H", "DAYS", "K=V"].contains(&name.as_str());
                assert!(!is_odd, "{path} has the value name {name}");
            }
        }
    }
}

#[test]
fn refused_values_are_explained_without_rust() {
    for (path, verb) in all_verbs() {
        for arg in own_arguments(&verb).filter(|arg| arg.get_action().takes_values()) {
            for value in ["§", "-3", "99999999999999999999", "1.5", ""] {
                let alone = Arg::new("it").long("it").value_parser(arg.get_value_parser().clone());
                let alone = Command::new("verb").arg(alone.allow_hyphen_values(true));
                let Err(error) = alone.try_get_matches_from(["verb", "--it", value]) else { continue };
                let text = error.to_string();
                for rust in ["digit", "literal", "parse", "float", "u16", "u32", "integer", "syntax"] {
                    assert!(!text.contains(rust), "{path} {}: {text}", arg.get_id());
                }
            }
        }
    }
}

/// The groups of verbs that are actions. The others start programs, or change settings.
const ACTION_GROUPS: [&str; 3] = ["Talk", "See", "Work"];

#[test]
fn verbs_are_in_list_of_actions() {
    let all = all_verbs();
    let known: Vec<&str> = ACTIONS.iter().filter_map(|action| action.verb.ok()).collect();
    let actions = GROUPS.iter().filter(|(group, _)| ACTION_GROUPS.contains(group));
    let heads: BTreeSet<&str> = actions.flat_map(|(_, verbs)| verbs.iter().copied()).collect();
    for (path, verb) in &all {
        let name = path.trim_start_matches("switchboard ");
        let is_leaf = verb.get_subcommands().next().is_none();
        let is_action = name.split(' ').next().is_some_and(|head| heads.contains(head));
        let is_known = known.iter().any(|verb| name == *verb || name.starts_with(&format!("{verb} ")));
        assert!(
            !is_leaf || !is_action || is_known,
            "'{name}' is no action in switchboard-actions/src/list.rs"
        );
    }
    for verb in known {
        assert!(all.iter().any(|(path, _)| *path == format!("switchboard {verb}")), "no verb '{verb}'");
    }
}

#[test]
fn tools_are_in_list_of_actions() {
    let tools = list_tools(Profile::Full);
    for tool in &tools {
        assert!(Action::of_tool(&tool.name).is_some(), "'{}' is no action", tool.name);
    }
    for tool in ACTIONS.iter().filter_map(|action| action.tool.ok()) {
        assert!(tools.iter().any(|known| known.name == tool), "no tool '{tool}'");
    }
}

#[test]
fn verb_and_tool_accept_the_same_fields() {
    let (verbs, tools) = (all_verbs(), list_tools(Profile::Full));
    for action in ACTIONS {
        let (Ok(verb), Ok(tool)) = (action.verb, action.tool) else { continue };
        let (_, verb) = verbs.iter().find(|(path, _)| *path == format!("switchboard {verb}")).unwrap();
        let arguments = own_arguments(verb).filter(|arg| !arg.is_global_set());
        let options: BTreeSet<String> = arguments.map(written_name).collect();
        let named = action.fields.iter().filter_map(|field| field.option.ok());
        assert_eq!(options, named.map(str::to_owned).collect(), "the options of '{}'", verb.get_name());
        let tool = tools.iter().find(|known| known.name == tool).unwrap();
        let properties = tool.input_schema.get("properties").and_then(|known| known.as_object());
        let properties: BTreeSet<&str> =
            properties.into_iter().flatten().map(|(key, _)| key.as_str()).collect();
        let named = action.fields.iter().filter_map(|field| field.argument.ok());
        assert_eq!(properties, named.collect(), "the arguments of '{}'", tool.name);
    }
}

/// An option with its dashes, or the name of a positional argument.
fn written_name(arg: &Arg) -> String {
    match arg.get_long() {
        Some(long) => format!("--{long}"),
        None => arg.get_id().to_string(),
    }
}
