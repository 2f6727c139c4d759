//! Lazily built arguments: clap builds a verb's arguments only when that verb is used.

use clap::error::Error;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::help;

/// Arguments `T` that clap builds on demand.
///
/// All verbs together have hundreds of options, each with its help. Building them all costs more time and memory
/// than most verbs need themselves, and `switchboard mcp` would hold that memory for as long as its agent works.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) T);

/// Arguments `T` that clap builds at once, because one of them has the name of a global option.
///
/// Clap copies the global options into a verb before it runs a deferred description, so that the verb's own option
/// would collide with the copy.
#[derive(Debug)]
pub(crate) struct Immediate<T>(pub(crate) T);

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: Command) -> Command {
        command.defer(|verb| help::describe(verb, T::augment_args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|verb| help::describe(verb, T::augment_args_for_update))
    }
}

impl<T: FromArgMatches> FromArgMatches for Immediate<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Immediate<T> {
    fn augment_args(command: Command) -> Command {
        T::augment_args(command).defer(|verb| help::describe(verb, |verb| verb))
    }

    fn augment_args_for_update(command: Command) -> Command {
        T::augment_args_for_update(command).defer(|verb| help::describe(verb, |verb| verb))
    }
}
