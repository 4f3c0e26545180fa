//! Lazy descriptions of commands: the arguments of a command are described only once the command is asked for.
//!
//! The descriptions of all commands are a quarter of what `--version` does. Help shows the flags of every command below
//! those that are its own, which clap only does where all is described at once; so whatever is not simply a command that
//! runs is parsed a second time, with the whole tree.

use std::sync::atomic::{AtomicBool, Ordering};

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};

/// Whether trees that are made now hold everything.
static WHOLE: AtomicBool = AtomicBool::new(true);

/// Makes a tree in which nothing is described that is not asked for.
pub(crate) fn build_lazy_tree(tree: impl FnOnce() -> Command) -> Command {
    WHOLE.store(false, Ordering::Relaxed);
    let command = tree();
    WHOLE.store(true, Ordering::Relaxed);
    command
}

/// Arguments of a command, or its subcommands, that [`build_lazy_tree`] leaves for later.
#[derive(Debug)]
pub(crate) struct Lazy<T>(pub(crate) T);

fn describe_lazily(command: Command, describe: fn(Command) -> Command) -> Command {
    if WHOLE.load(Ordering::Relaxed) { describe(command) } else { command.defer(describe) }
}

impl<T: FromArgMatches> FromArgMatches for Lazy<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        T::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}

impl<T: Args> Args for Lazy<T> {
    fn group_id() -> Option<clap::Id> {
        T::group_id()
    }

    fn augment_args(command: Command) -> Command {
        describe_lazily(command, T::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        describe_lazily(command, T::augment_args_for_update)
    }
}

impl<T: Subcommand> Subcommand for Lazy<T> {
    fn augment_subcommands(command: Command) -> Command {
        describe_lazily(command, T::augment_subcommands)
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        describe_lazily(command, T::augment_subcommands_for_update)
    }

    fn has_subcommand(name: &str) -> bool {
        T::has_subcommand(name)
    }
}
