//! `kubectl-install`: makes the program a kubectl plugin by putting a `kubectl-fleet`, or one of another name, beside it.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::api::shell::quote_word;
use crate::api::util::file;
use crate::api::util::file::FileError;
use crate::api::util::file_fault::{FileFault, Usage};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::add_file_remedy;
use crate::cli::output::terminal::Ui;
use crate::cli::parser::plugin_name::PluginName;

mod found_plugins;

/// Install this program as a kubectl plugin: as `kubectl fleet`, or under another name
#[derive(Debug, Default, Args)]
pub(crate) struct KubectlInstallArgs {
    /// Folder to install into, which must be on PATH [default: the folder of this program]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,

    /// Name of the plugin: `kubectl NAME` runs it [default: fleet, or the name of the plugin that runs this command]
    #[arg(long, value_name = "NAME")]
    name: Option<PluginName>,

    /// Copy the program instead of linking to it
    #[arg(long)]
    copy: bool,

    /// Remove the plugin again
    #[arg(long, conflicts_with = "copy")]
    uninstall: bool,
}

impl KubectlInstallArgs {
    /// The command that does this again, or that removes what this installs.
    fn format_command(&self, program: &str, uninstall: bool) -> String {
        let mut command = format!("{program} kubectl-install");
        if let Some(folder) = &self.bin_dir {
            command.push_str(&format!(" --bin-dir {}", quote_word(&folder.to_string_lossy())));
        }
        if let Some(name) = &self.name {
            command.push_str(&format!(" --name {name}"));
        }
        if uninstall {
            command.push_str(" --uninstall");
        } else if self.copy {
            command.push_str(" --copy");
        }
        command
    }
}

pub(crate) fn run(ui: &Ui, args: &KubectlInstallArgs) -> Result<Exit, CliError> {
    let program = std::env::current_exe().and_then(fs_err::canonicalize)?;
    let folder = match &args.bin_dir {
        Some(folder) => std::path::absolute(folder)?,
        None => program.parent().unwrap_or(Path::new("/")).to_path_buf(),
    };
    check_folder(&folder)?;
    let name = args.name.clone().or_else(PluginName::of_this_run).unwrap_or_default();
    let plugin = folder.join(name.file_name());
    let ours = is_ours(&plugin, &program)?;
    if args.uninstall {
        return uninstall_plugin(ui, args, &name, &plugin, &program, ours);
    }
    if is_there(&plugin)? && !ours {
        return Err(CliError::new(
            Exit::Refused,
            "NotOurs",
            format!("{} exists and is not this program", plugin.display()),
        )
        .cause(format!("it is {}", found_plugins::describe_program(&plugin)))
        .hint("choose another name with `--name`, or another folder with `--bin-dir`; or remove it by hand"));
    }
    place_program(&program, &plugin, args.copy).map_err(|error| no_rights(&error, &plugin, ui, args))?;
    install_completer(ui, args, &name, &folder, &program)?;
    ui.write_stdout(&format!("Installed {}; try `{} --help`\n", plugin.display(), name.typed_command()))?;
    let removal = args.format_command(ui.program, true);
    for warning in found_plugins::find_conflicts(&name, &folder, &plugin, &program, &removal) {
        ui.warn(&warning);
    }
    Ok(Exit::Ok)
}

/// Checks that the folder is one that can be looked into.
fn check_folder(folder: &Path) -> Result<(), CliError> {
    match std::fs::metadata(folder) {
        Ok(found) if found.is_dir() => Ok(()),
        Err(error) if !file::is_absent(&error) => {
            Err(unusable_plugin(folder, &file::wrap_io_error("inspect", folder)(error)))
        }
        _ => Err(CliError::usage("NoSuchFolder", format!("{} is not a folder", folder.display()))
            .hint("create it, or choose another with `--bin-dir`")),
    }
}

/// Returns whether something is at a path, a link that leads nowhere too.
fn is_there(path: &Path) -> Result<bool, CliError> {
    Ok(file::read_metadata(path).map_err(|error| unusable_plugin(path, &error))?.is_some())
}

/// The error of a plugin that cannot be read.
fn unreadable_plugin(plugin: &Path, error: std::io::Error) -> CliError {
    unusable_plugin(plugin, &file::wrap_io_error("read", plugin)(error))
}

/// The error of a plugin, or of its folder, that cannot be looked at.
fn unusable_plugin(path: &Path, error: &FileError) -> CliError {
    let shown = CliError::new(Exit::Failed, "CannotWritePlugin", format!("cannot use {}", path.display()));
    add_file_remedy(shown.because(error), error)
}

fn uninstall_plugin(
    ui: &Ui,
    args: &KubectlInstallArgs,
    name: &PluginName,
    plugin: &Path,
    program: &Path,
    ours: bool,
) -> Result<Exit, CliError> {
    if !is_there(plugin)? {
        ui.write_stdout(&format!("Nothing to remove: {} does not exist\n", plugin.display()))?;
        return Ok(Exit::Ok);
    }
    if !ours {
        return Err(CliError::new(Exit::Refused, "NotOurs", format!("{} is not this program", plugin.display()))
            .cause(format!("it is {}", found_plugins::describe_program(plugin)))
            .hint("remove it by hand if you are sure"));
    }
    fs_err::remove_file(plugin).map_err(|error| no_rights(&error, plugin, ui, args))?;
    let helper = plugin.with_file_name(name.completer_name());
    // The program may be the plugin itself, a copy that is gone now.
    if is_ours(&helper, program)? {
        fs_err::remove_file(&helper).map_err(|error| no_rights(&error, &helper, ui, args))?;
    }
    ui.write_stdout(&format!("Removed {}\n", plugin.display()))?;
    Ok(Exit::Ok)
}

/// Puts the completer beside the plugin. The plugin works without, so a file in its place is only warned about.
fn install_completer(
    ui: &Ui,
    args: &KubectlInstallArgs,
    name: &PluginName,
    folder: &Path,
    program: &Path,
) -> Result<(), CliError> {
    let helper = folder.join(name.completer_name());
    if is_there(&helper)? && !is_ours(&helper, program)? {
        let command = name.typed_command();
        ui.warn(&format!("{} is not this program, so the shell cannot complete `{command}`", helper.display()));
        return Ok(());
    }
    place_program(program, &helper, args.copy).map_err(|error| no_rights(&error, &helper, ui, args))
}

/// Returns whether `plugin` is a link to this program or a copy of a program of this name.
fn is_ours(plugin: &Path, program: &Path) -> Result<bool, CliError> {
    let Ok(meta) = plugin.symlink_metadata() else { return Ok(false) };
    if meta.is_symlink() {
        let target = fs_err::read_link(plugin)?;
        let target = plugin.parent().unwrap_or(Path::new("/")).join(target);
        return Ok(target == program || target.file_name() == program.file_name());
    }
    // Without `black_box`, an optimised program for arm64 compares with numbers and does not contain the text itself.
    let mark = std::hint::black_box(MARK.as_bytes());
    let bytes = if meta.is_file() {
        std::fs::read(plugin).map_err(|error| unreadable_plugin(plugin, error))?
    } else {
        Vec::new()
    };
    Ok(bytes.windows(mark.len()).any(|window| window == mark))
}

/// Text that every build of the program contains and no other program does, by which it knows a copy of itself or of
/// another release.
const MARK: &str = "fleet-scheduler.io/this-file-is-fleetctl";

fn place_program(program: &Path, plugin: &Path, copy: bool) -> std::io::Result<()> {
    let folder = plugin.parent().unwrap_or(Path::new("/"));
    if plugin.symlink_metadata().is_ok_and(|_| plugin == program) {
        return Ok(());
    }
    // Put beside it first and renamed, so that kubectl never sees half a file.
    let scratch = tempfile::Builder::new().prefix(".kubectl-fleet").tempdir_in(folder)?;
    let fresh = scratch.path().join("program");
    if copy {
        fs_err::copy(program, &fresh)?;
    } else {
        link_program(program, &fresh)?;
    }
    fs_err::rename(&fresh, plugin)
}

#[cfg(unix)]
fn link_program(program: &Path, fresh: &Path) -> std::io::Result<()> {
    fs_err::os::unix::fs::symlink(program, fresh)
}

#[cfg(not(unix))]
fn link_program(program: &Path, fresh: &Path) -> std::io::Result<()> {
    fs_err::copy(program, fresh).map(drop)
}

/// The error of a plugin, or of what completes it, that cannot be written or removed.
pub(crate) fn no_rights(error: &std::io::Error, plugin: &Path, ui: &Ui, args: &KubectlInstallArgs) -> CliError {
    let failed =
        CliError::new(Exit::Failed, "CannotWritePlugin", format!("cannot write {}", plugin.display())).because(error);
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        let again = format!("run `sudo {}`", args.format_command(ui.program, args.uninstall));
        return failed.hint(if args.uninstall {
            again
        } else {
            format!("{again}, or install into your own folder: `--bin-dir ~/.local/bin`")
        });
    }
    match FileFault::from_io_error(plugin, Usage::Write, error).remedy() {
        Some(remedy) => failed.hint(remedy),
        None => failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> KubectlInstallArgs {
        use clap::FromArgMatches as _;
        let command = KubectlInstallArgs::augment_args(clap::Command::new("kubectl-install").no_binary_name(true));
        KubectlInstallArgs::from_arg_matches(&command.try_get_matches_from(words).unwrap()).unwrap()
    }

    fn denied(words: &[&str]) -> String {
        let error = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        let ui = Ui::for_tests();
        no_rights(&error, Path::new("/opt/bin/kubectl-two"), &ui, &args(words)).render(&ui)
    }

    #[test]
    fn a_command_that_is_to_be_run_again_has_its_flags() {
        let named = ["--name", "two", "--bin-dir", "/opt/our bin"];
        assert_eq!(args(&[]).format_command("fleetctl", false), "fleetctl kubectl-install");
        let again = args(&[&named[..], &["--copy"]].concat());
        let command = "fleetctl kubectl-install --bin-dir '/opt/our bin' --name two";
        assert_eq!(again.format_command("fleetctl", false), format!("{command} --copy"));
        assert_eq!(again.format_command("fleetctl", true), format!("{command} --uninstall"));

        let hint = denied(&named);
        assert!(hint.contains(&format!("`sudo {command}`, or install into your own folder")), "{hint}");
        let hint = denied(&[&named[..], &["--uninstall"]].concat());
        assert!(hint.contains(&format!("`sudo {command} --uninstall`")) && !hint.contains("~/.local"), "{hint}");
    }
}
