//! `kubectl-install`: makes the program a kubectl plugin by putting a `kubectl-fleet` beside it.

use std::path::{Path, PathBuf};

use clap::Args;

use super::completion::KUBECTL_COMPLETE;
use crate::cli::output::error::{CliError, Exit};
use crate::cli::output::terminal::Ui;

/// File name by which kubectl finds the plugin.
const PLUGIN: &str = if cfg!(windows) { "kubectl-fleet.exe" } else { "kubectl-fleet" };

/// Install this program as a kubectl plugin, so that `kubectl fleet` works
#[derive(Debug, Args)]
pub(crate) struct KubectlInstallArgs {
    /// Folder to install into, which must be on PATH [default: the folder of this program]
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,

    /// Copy the program instead of linking to it
    #[arg(long)]
    copy: bool,

    /// Remove the plugin again
    #[arg(long, conflicts_with = "copy")]
    uninstall: bool,
}

pub(crate) fn run(ui: &Ui, args: &KubectlInstallArgs) -> Result<Exit, CliError> {
    let program = std::env::current_exe().and_then(fs_err::canonicalize)?;
    let folder = match &args.bin_dir {
        Some(folder) => std::path::absolute(folder)?,
        None => program.parent().unwrap_or(Path::new("/")).to_path_buf(),
    };
    if !folder.is_dir() {
        return Err(CliError::usage("NoSuchFolder", format!("{} is not a folder", folder.display()))
            .hint("create it, or choose another with `--bin-dir`"));
    }
    let plugin = folder.join(PLUGIN);
    let ours = is_ours(&plugin, &program)?;
    if args.uninstall {
        return uninstall_plugin(ui, &plugin, &program, ours);
    }
    if plugin.symlink_metadata().is_ok() && !ours {
        return Err(CliError::new(
            Exit::Refused,
            "NotOurs",
            format!("{} exists and is not this program", plugin.display()),
        )
        .hint("remove it by hand, or choose another folder with `--bin-dir`"));
    }
    place_program(&program, &plugin, args.copy).map_err(|error| no_rights(&error, &plugin, ui))?;
    install_completer(ui, &folder, &program, args.copy)?;
    ui.write_stdout(&format!("Installed {}; try `kubectl fleet --help`\n", plugin.display()))?;
    match on_path(&folder, &plugin) {
        OnPath::Found => {}
        OnPath::Nowhere => {
            ui.warn(&format!("{} is not on PATH, so kubectl will not find the plugin", folder.display()));
        }
        OnPath::Shadowed(other) => ui.warn(&format!(
            "kubectl finds {} first on PATH and runs it instead: remove it, or put {} before its folder",
            other.display(),
            folder.display()
        )),
    }
    Ok(Exit::Ok)
}

fn uninstall_plugin(ui: &Ui, plugin: &Path, program: &Path, ours: bool) -> Result<Exit, CliError> {
    if plugin.symlink_metadata().is_err() {
        ui.write_stdout(&format!("Nothing to remove: {} does not exist\n", plugin.display()))?;
        return Ok(Exit::Ok);
    }
    if !ours {
        return Err(CliError::new(Exit::Refused, "NotOurs", format!("{} is not this program", plugin.display()))
            .hint("remove it by hand if you are sure"));
    }
    fs_err::remove_file(plugin).map_err(|error| no_rights(&error, plugin, ui))?;
    let helper = completer_path(plugin.parent().unwrap_or(Path::new("/")));
    // The program may be the plugin itself, a copy that is gone now.
    if is_ours(&helper, program)? {
        fs_err::remove_file(&helper).map_err(|error| no_rights(&error, &helper, ui))?;
    }
    ui.write_stdout(&format!("Removed {}\n", plugin.display()))?;
    Ok(Exit::Ok)
}

/// The program beside the plugin that kubectl asks how `kubectl fleet` goes on.
fn completer_path(folder: &Path) -> PathBuf {
    folder.join(KUBECTL_COMPLETE).with_extension(std::env::consts::EXE_EXTENSION)
}

/// Puts the completer beside the plugin. The plugin works without, so a file in its place is only warned about.
fn install_completer(ui: &Ui, folder: &Path, program: &Path, copy: bool) -> Result<(), CliError> {
    let helper = completer_path(folder);
    if helper.symlink_metadata().is_ok() && !is_ours(&helper, program)? {
        ui.warn(&format!("{} is not this program; `kubectl fleet` is not completed", helper.display()));
        return Ok(());
    }
    place_program(program, &helper, copy).map_err(|error| no_rights(&error, &helper, ui))
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
    Ok(meta.is_file() && fs_err::read(plugin)?.windows(mark.len()).any(|window| window == mark))
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
    let fresh = scratch.path().join(PLUGIN);
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
fn link(program: &Path, fresh: &Path) -> std::io::Result<()> {
    fs_err::copy(program, fresh).map(drop)
}

/// The error of a plugin, or of what completes it, that cannot be written or removed.
pub(crate) fn no_rights(error: &std::io::Error, plugin: &Path, ui: &Ui) -> CliError {
    let failed =
        CliError::new(Exit::Failed, "CannotWritePlugin", format!("cannot write {}", plugin.display())).because(error);
    if error.kind() == std::io::ErrorKind::PermissionDenied {
        return failed.hint(format!(
            "run `sudo {} kubectl-install`, or install into your own folder: `--bin-dir ~/.local/bin`",
            ui.program
        ));
    }
    failed
}

/// Result of kubectl's search for the plugin on PATH.
#[derive(Debug, PartialEq, Eq)]
enum OnPath {
    /// The plugin of this folder, or the same program.
    Found,
    /// No plugin.
    Nowhere,
    /// Another plugin before that of this folder.
    Shadowed(PathBuf),
}

/// Looks for the plugin as kubectl does, and compares what it finds as the file system has it: folders on PATH may be links
/// or relative.
fn on_path(folder: &Path, plugin: &Path) -> OnPath {
    let real = |path: &Path| fs_err::canonicalize(path).ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An empty entry is the current folder.
    let entries =
        std::env::split_paths(&path).map(|entry| if entry.as_os_str().is_empty() { ".".into() } else { entry });
    for entry in entries {
        if entry == folder || real(&entry).is_some_and(|entry| Some(entry) == real(folder)) {
            return OnPath::Found;
        }
        let other = entry.join(PLUGIN);
        if is_program(&other) {
            return if real(&other) == real(plugin) { OnPath::Found } else { OnPath::Shadowed(other) };
        }
    }
    OnPath::Nowhere
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}
