//! The flags that set values: `--values`, `--set` and its relatives, kept in the order in which they were given.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::chart::{self, Diagnostic, Place, Preset, SetKind, ValuesBuilder, read_file};

const KINDS: [SetKind; 4] = [SetKind::Value, SetKind::Text, SetKind::File, SetKind::Json];

/// The flag of a kind without its dashes, which is also its identifier for the parser.
fn flag_id(kind: SetKind) -> &'static str {
    kind.flag_name().trim_start_matches('-')
}

const fn flag_help(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Value => "Set a value, e.g. `etcd.storage.size=20Gi`; may be repeated",
        SetKind::Text => "Set a value as text, without conversion to a number or a boolean",
        SetKind::File => "Set a value to the content of a file",
        SetKind::Json => "Set a value given as JSON",
    }
}

const fn value_name(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Value | SetKind::Text => "PATH=VALUE",
        SetKind::File => "PATH=FILE",
        SetKind::Json => "PATH=JSON",
    }
}

/// All sources of values on the command line but the dedicated flags.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValuesArgs {
    /// `--preset` names in order.
    presets: Vec<String>,
    /// `--values` files in order; `-` is standard input.
    pub(crate) files: Vec<PathBuf>,
    /// `--set…` flags in order, across their kinds.
    pub(crate) sets: Vec<(SetKind, String)>,
    /// Files that have been read: standard input can be read only once.
    read: Arc<OnceLock<ReadValues>>,
}

/// Files that have been read, and the other arguments: what several charts can be given.
#[derive(Debug)]
pub(crate) struct ReadValues {
    presets: Vec<String>,
    files: Vec<(String, Result<Vec<u8>, Diagnostic>)>,
    sets: Vec<(SetKind, String)>,
}

impl ReadValues {
    /// Lays them over what the builder holds.
    pub(crate) fn apply_read_values(&self, mut builder: ValuesBuilder) -> ValuesBuilder {
        for preset in find_presets(&self.presets) {
            builder = builder.file(&format!("preset {}", preset.name), preset.text.as_bytes());
        }
        for (name, bytes) in &self.files {
            builder = builder.file_result(name, bytes.clone());
        }
        for (kind, text) in &self.sets {
            builder = builder.set(*kind, text);
        }
        builder
    }
}

impl ValuesArgs {
    /// Returns whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.presets.is_empty() && self.files.is_empty() && self.sets.is_empty()
    }

    /// Reads the files, standard input included, once.
    pub(crate) fn read_files(&self) -> &ReadValues {
        self.read.get_or_init(|| self.read_now())
    }

    /// The service version that the values name, as it was written, and where. What cannot be read is reported when the
    /// values are checked.
    pub(crate) fn peek_version(&self) -> Option<(String, Place)> {
        if self.is_empty() {
            return None;
        }
        self.apply_values(ValuesBuilder::new(None)).peek_at("version").ok()?
    }

    fn read_now(&self) -> ReadValues {
        let files = self.files.iter().map(|file| {
            let path = file.display().to_string();
            let name = if path == "-" { "standard input".to_owned() } else { path.clone() };
            (name, read_file(&path).map_err(|problem| with_preset(problem, &path)))
        });
        ReadValues { presets: self.presets.clone(), files: files.collect(), sets: self.sets.clone() }
    }

    /// Reads the files and lays everything over what the builder holds.
    pub(crate) fn apply_values(&self, builder: ValuesBuilder) -> ValuesBuilder {
        self.read_files().apply_read_values(builder)
    }
}

/// The presets of these names, in their order.
fn find_presets(names: &[String]) -> impl Iterator<Item = Preset> {
    names.iter().filter_map(|name| chart::embedded_presets().find(|preset| preset.name == *name))
}

/// The problem with a file of values, and the preset that was meant where the file is called like one.
fn with_preset(problem: Diagnostic, path: &str) -> Diagnostic {
    let name = Path::new(path).file_stem().and_then(OsStr::to_str).unwrap_or(path);
    match chart::embedded_presets().find(|preset| preset.name == name) {
        Some(preset) => problem.help(format!("to use the preset of this name: `--preset {}`", preset.name)),
        None => problem,
    }
}

/// The end of a command's help: its examples, then the order in which values win. The commands of control planes that
/// read the environment say so behind the examples.
macro_rules! with_precedence {
    ($examples:literal) => {
        with_precedence!(
            $examples,
            "2  --preset NAME                                       in the order given
  3  --values FILE                                       in the order given
  4  --set, --set-string, --set-file, --set-json         in the order given, across these four flags
  5  dedicated flags, such as --image-tag                at any position"
        )
    };
    ($examples:literal, environment) => {
        with_precedence!(
            $examples,
            "2  environment, such as FLEET_NODE_IP                  `fleetctl --help` lists it
  3  --preset NAME                                       in the order given
  4  --values FILE                                       in the order given
  5  --set, --set-string, --set-file, --set-json         in the order given, across these four flags
  6  dedicated flags, such as --image-tag                at any position"
        )
    };
    ($examples:literal, recorded) => {
        with_precedence!(
            $examples,
            "2  values of the last install                          by `upgrade` and with --reuse-values
  3  --preset NAME                                       in the order given
  4  --values FILE                                       in the order given
  5  --set, --set-string, --set-file, --set-json         in the order given, across these four flags
  6  dedicated flags, such as --image-tag                at any position

If a value of the last install is not given again, `install`, `diff` and `check --pre` refuse to reset it, unless you
give --reset-values. `fleetctl get values NAME` prints these values; a rollback restores them."
        )
    };
    ($examples:literal, recorded, environment) => {
        with_precedence!(
            $examples,
            "2  values of the last install                          by `upgrade` and with --reuse-values
  3  environment, such as FLEET_NODE_IP                  `fleetctl --help` lists it
  4  --preset NAME                                       in the order given
  5  --values FILE                                       in the order given
  6  --set, --set-string, --set-file, --set-json         in the order given, across these four flags
  7  dedicated flags, such as --image-tag                at any position

If a value of the last install is not given again, `install`, `diff` and `check --pre` refuse to reset it, unless you
give --reset-values. `fleetctl get values NAME` prints these values; a rollback restores them."
        )
    };
    ($examples:literal, $rest:literal) => {
        concat!(
            $examples,
            "

Values are merged in this order; the last one wins:
  1  defaults of the chart                               `fleetctl show values` prints them
  ",
            $rest,
            "
Mappings are merged key by key; lists and scalars are replaced; `null` removes a value of an earlier layer, including
one of the last install."
        )
    };
}
pub(crate) use with_precedence;

const HEADING: &str = "Values";
const VALUES_HELP: &str = "File with values, YAML or JSON, `-` for standard input; may be repeated, later ones win";

impl clap::Args for ValuesArgs {
    fn augment_args(command: Command) -> Command {
        // Each with its heading: one set for all that follow would take in the flags of the command, too.
        let names = chart::embedded_presets().map(|preset| PossibleValue::new(preset.name));
        let command = command.arg(
            Arg::new("preset")
                .help_heading(HEADING)
                .long("preset")
                .value_name("NAME")
                .help("Values that come with the program; may be repeated, later ones win [see: show presets]")
                .value_parser(PossibleValuesParser::new(names))
                .hide_possible_values(true)
                .action(ArgAction::Append),
        );
        let command = command.arg(
            Arg::new("values")
                .help_heading(HEADING)
                .long("values")
                .short('f')
                .value_name("FILE")
                .help(VALUES_HELP)
                .value_parser(clap::value_parser!(PathBuf))
                .action(ArgAction::Append),
        );
        KINDS.into_iter().fold(command, |command, kind| {
            command.arg(
                Arg::new(flag_id(kind))
                    .help_heading(HEADING)
                    .long(flag_id(kind))
                    .value_name(value_name(kind))
                    .help(flag_help(kind))
                    .action(ArgAction::Append),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ValuesArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let files = matches.get_many::<PathBuf>("values").into_iter().flatten().cloned().collect();
        let presets = matches.get_many::<String>("preset").into_iter().flatten().cloned().collect();
        let mut placed: Vec<(usize, SetKind, String)> = Vec::new();
        for kind in KINDS {
            let texts = matches.get_many::<String>(flag_id(kind)).into_iter().flatten();
            let places = matches.indices_of(flag_id(kind)).into_iter().flatten();
            placed.extend(places.zip(texts).map(|(place, text)| (place, kind, text.clone())));
        }
        placed.sort_by_key(|(place, ..)| *place);
        let sets = placed.into_iter().map(|(_, kind, text)| (kind, text)).collect();
        Ok(Self { presets, files, sets, read: Arc::default() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches};

    #[test]
    fn set_flags_keep_their_order_across_kinds() {
        let command = ValuesArgs::augment_args(Command::new("x"));
        let argv = ["x", "--set-string", "a=1", "-f", "one", "--set", "b=2", "--set-string", "c=3", "--values", "two"];
        let args = ValuesArgs::from_arg_matches(&command.get_matches_from(argv)).unwrap();
        assert_eq!(args.files, [PathBuf::from("one"), PathBuf::from("two")]);
        let sets: Vec<(SetKind, &str)> = args.sets.iter().map(|(kind, text)| (*kind, text.as_str())).collect();
        assert_eq!(sets, [(SetKind::Text, "a=1"), (SetKind::Value, "b=2"), (SetKind::Text, "c=3")]);
    }
}
