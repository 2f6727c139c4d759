//! The arguments of a verb, described to clap only when that verb is typed.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Arguments `T`, which clap hears of when it needs them.
///
/// All verbs together have hundreds of options, each with its help. To describe them all costs more time and memory
/// than most verbs need themselves, and a `switchboard mcp` keeps it for as long as its agent works.
#[derive(Debug)]
pub(crate) struct Later<T>(pub(crate) T);

impl<T: FromArgMatches> FromArgMatches for Later<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Later<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|command| described(command, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|command| described(command, T::augment_args_for_update))
    }
}

/// The verb with its arguments. What it does is said by the list of verbs; `--help` says what its arguments say of it,
/// which is more.
fn described(verb: Command, augment: fn(Command) -> Command) -> Command {
    let about = verb.get_about().cloned();
    let verb = augment(verb.about(None).long_about(None));
    let more = verb.get_long_about().or_else(|| verb.get_about()).or(about.as_ref()).cloned();
    let verb = if let Some(about) = about { verb.about(about) } else { verb };
    if let Some(more) = more { verb.long_about(more) } else { verb }
}
