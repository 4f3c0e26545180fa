//! A folder with a file for each object, written again and again: names that stay, and an index of what is our own.

use std::collections::BTreeSet;
use std::path::Path;

use crate::api::util::file;
use crate::api::util::file::{FileError, wrap_io_error};
use crate::chart::{Object, output};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::format::Format;
use crate::cli::output::install_error::add_file_remedy;

/// The file with the names of what was written here, a line each. kubectl and kustomize do not read it.
const INDEX: &str = ".fleetctl-index";
/// Largest size of an index, in bytes. The folder may be one that others write.
const LARGEST_INDEX: u64 = 1024 * 1024;

/// Writes the objects and gives the paths of their files, a line each. Files of an earlier output that are no longer
/// among it are removed; all others stay.
pub(super) fn write_object_files(folder: &Path, objects: &[Object], format: Format) -> Result<String, CliError> {
    let extension = match format {
        Format::Json => "json",
        Format::Yaml => "yaml",
    };
    let names = object_file_names(objects, extension);
    // Secrets hold private keys, so nobody else may read them or put a file of theirs in the place of one.
    let secrets = objects.iter().any(|object| object.kind() == "Secret");
    let is_new = !file::is_present(folder).map_err(|error| refused_file_error(&error))?;
    if secrets && is_new {
        file::private_folder(folder).map_err(|error| refused_file_error(&error))?;
    }
    let made = std::fs::create_dir_all(folder).map_err(wrap_io_error("create the folder", folder));
    made.map_err(|error| refused_file_error(&error))?;
    if secrets {
        file::own_folder(folder).map_err(|error| refused_file_error(&error))?;
    }
    let own = read_file_index(folder)?;
    let foreign = names.iter().find(|name| !own.contains(*name) && folder.join(name).symlink_metadata().is_ok());
    if let Some(name) = foreign {
        return Err(CliError::new(
            Exit::Refused,
            "FolderInUse",
            format!("{} contains `{name}`, which was not written by this program", folder.display()),
        )
        .hint("choose a new folder, or move this file away"));
    }
    // Known before they are there, so that a run that is interrupted leaves nothing unknown.
    let known: BTreeSet<&String> = own.iter().chain(&names).collect();
    write_index(folder, known)?;
    let mut written = String::new();
    for (name, object) in names.iter().zip(objects) {
        let path = folder.join(name);
        let text = match format {
            Format::Json => output::format_json(&object.json),
            Format::Yaml => output::yaml_stream([&object.json]),
        };
        let mode = if object.kind() == "Secret" { file::PRIVATE } else { file::PUBLIC };
        file::replace_file(&path, text.as_bytes(), mode).map_err(|error| refused_file_error(&error))?;
        written.push_str(&format!("{}\n", path.display()));
    }
    for gone in own.iter().filter(|name| !names.contains(name)) {
        let gone = folder.join(gone);
        match std::fs::remove_file(&gone) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(refused_file_error(&wrap_io_error("remove", &gone)(error)));
            }
            _ => {}
        }
    }
    write_index(folder, names.iter().collect())?;
    Ok(written)
}

/// The names of earlier outputs. Only plain names count: whatever else an index says was not written here.
fn read_file_index(folder: &Path) -> Result<BTreeSet<String>, CliError> {
    let text = file::read_text(&folder.join(INDEX), LARGEST_INDEX).map_err(|error| refused_file_error(&error))?;
    let text = text.unwrap_or_default();
    let plain =
        text.lines().filter(|name| !name.starts_with('.') && !name.contains(['/', '\\', '\0']) && is_manifest(name));
    Ok(plain.map(str::to_owned).collect())
}

fn is_manifest(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "json")
}

fn write_index(folder: &Path, names: BTreeSet<&String>) -> Result<(), CliError> {
    let text: String = names.into_iter().map(|name| format!("{name}\n")).collect();
    file::replace_file(&folder.join(INDEX), text.as_bytes(), file::PUBLIC).map_err(|error| refused_file_error(&error))
}

/// A file or folder that is not written to.
fn refused_file_error(error: &FileError) -> CliError {
    match error {
        FileError::Unexpected { .. } => CliError::new(Exit::Refused, "FolderNotSafe", error.to_string())
            .hint("choose a folder that does not exist yet: it is created with mode 0700; or leave Secrets out with `--exclude-kind Secret`"),
        FileError::Io { source, .. } => {
            add_file_remedy(CliError::new(Exit::Failed, "Io", error.to_string()).because(source), error)
        }
    }
}

/// `03-deployment-apiserver.yaml`: stages are numbered, so that the order of names is the order of applying, and an
/// object that is added renames no other.
fn object_file_names(objects: &[Object], extension: &str) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let names = objects.iter().map(|object| {
        let kind = object.kind().to_lowercase();
        let parts = [kind.as_str(), object.name(), object.namespace().unwrap_or_default(), object.group()];
        let [kind, name, namespace, group] =
            parts.map(|part| part.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '.', "_"));
        let base = format!("{:02}-{kind}-{name}", object.stage);
        // Names are unique in their namespace and API group only.
        let in_namespace = format!("{base}-in-{namespace}");
        let in_group = format!("{in_namespace}-{group}");
        let free = [base, in_namespace, in_group].into_iter().find(|name| taken.insert(name.clone()));
        format!("{}.{extension}", free.unwrap_or_default())
    });
    names.collect()
}
