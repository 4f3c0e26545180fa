//! Plugins of other programs on PATH that hide this one, or that it hides, and their owners.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::is_ours;
use crate::api::util::file_fault::find_user_name;
use crate::cli::parser::plugin_name::PluginName;

/// What users have to know of the plugins on PATH, a warning each: that kubectl does not find this one, runs another one in its
/// place, or from now on no longer runs another one. `removal` is the command that removes this one.
///
/// kubectl takes the first file of a name on PATH; that of the longest name counts. What is found is compared as the file
/// system has it: folders on PATH may be links or relative.
pub(super) fn find_conflicts(
    name: &PluginName,
    folder: &Path,
    plugin: &Path,
    program: &Path,
    removal: &str,
) -> Vec<String> {
    let (command, folder) = (name.typed_command(), folder.display());
    let entries = list_path_entries();
    let own = entries.iter().position(|entry| is_same(&entry.join(name.file_name()), plugin));
    // The same program in two folders is one.
    let others: Vec<(usize, PathBuf)> = entries
        .iter()
        .map(|entry| entry.join(name.file_name()))
        .enumerate()
        .filter(|(_, other)| is_program(other) && !is_same(other, plugin))
        .collect();
    let mut warnings = Vec::new();
    match (own, others.first()) {
        (None, None) => warnings.push(format!("{folder} is not on PATH, so kubectl will not find the plugin")),
        (own, Some((at, other))) if own.is_none_or(|own| *at < own) => warnings.push(format!(
            "kubectl finds {} first on PATH and runs it instead ({}): remove it, or put {folder} before its folder, or \
             install under another name with `--name`",
            other.display(),
            describe_program(other)
        )),
        // The other ones come behind it, or are of this program.
        _ => {
            for (_, other) in others.iter().filter(|(_, other)| !is_ours(other, program).unwrap_or_default()) {
                warnings.push(format!(
                    "this plugin hides {} ({}): `{command}` no longer runs it. To have both, remove this one with \
                     `{removal}`, and install it under another name with `--name`",
                    other.display(),
                    describe_program(other)
                ));
            }
        }
    }
    warnings.extend(find_longer_names(&entries, name).into_iter().map(|(typed, other)| {
        format!(
            "kubectl runs {} for `{typed}`, in place of this plugin ({})",
            other.display(),
            describe_program(&other)
        )
    }));
    warnings
}

/// The folders of PATH; an empty entry is the current folder.
fn list_path_entries() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|entry| if entry.as_os_str().is_empty() { ".".into() } else { entry }).collect()
}

/// Programs that kubectl takes for subcommands of the plugin, with the command.
fn find_longer_names(entries: &[PathBuf], name: &PluginName) -> Vec<(String, PathBuf)> {
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    let begin = format!("{}-", name.file_name());
    for entry in entries {
        let files = std::fs::read_dir(entry).into_iter().flatten().flatten();
        let longer = files.filter(|file| file.file_name().to_string_lossy().starts_with(&begin));
        for file in longer.map(|file| file.path()).filter(|file| is_program(file)) {
            let typed = PluginName::from_program(file.as_os_str()).map(|name| name.typed_command());
            if let Some(typed) = typed.filter(|typed| found.iter().all(|(known, _)| known != typed)) {
                found.push((typed, file));
            }
        }
    }
    found.sort();
    found
}

/// Says whose a program is: krew's, with name and version, or a user's.
pub(super) fn describe_program(file: &Path) -> String {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    if let Some((plugin, version)) = find_krew_plugin(&real) {
        return format!("krew's plugin {plugin} {version}: `kubectl krew uninstall {plugin}` removes it");
    }
    let owner = match file.symlink_metadata() {
        Ok(found) if found.uid() == rustix::process::geteuid().as_raw() => "owned by you".to_owned(),
        Ok(found) => format!("owned by {}", find_user_name(found.uid())),
        Err(_) => "deleted meanwhile".to_owned(),
    };
    if real == file { owner } else { format!("{owner}, a link to {}", real.display()) }
}

/// The plugin and version of a program in krew's store, `…/store/PLUGIN/VERSION/FILE`.
fn find_krew_plugin(program: &Path) -> Option<(String, String)> {
    let parts: Vec<&str> = program.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let store = parts.windows(2).position(|pair| pair[0].ends_with("krew") && pair[1] == "store")?;
    Some(((*parts.get(store + 2)?).to_owned(), (*parts.get(store + 3)?).to_owned()))
}

fn is_same(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (std::fs::canonicalize(one), std::fs::canonicalize(other)) else { return false };
    one == other
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
