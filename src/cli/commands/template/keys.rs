//! The keys that manifests carry: from a folder of this machine, made there where there are none, or none at all.

use std::fmt;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;

use crate::api::names::ControlPlaneName;
use crate::api::util::digest::full_digest;
use crate::api::util::file;
use crate::chart::{Object, Rendered};
use crate::cli::output::error::CliError;
use crate::cli::output::exit_code::Exit;
use crate::cli::output::install_error::{local_file_error, local_keys, local_kubeconfig_remedy};
use crate::cli::output::terminal::Ui;
use crate::control_plane::endpoint::exposure::Endpoint;
use crate::control_plane::keys::{complete_keys, find_keys};
use crate::control_plane::kubeconfig::TEMPLATE_MARK;
use crate::control_plane::plan::Plan;
use crate::control_plane::values::PkiSource;
use crate::install::admin_access::LocalKubeconfigError;
use crate::install::fleet_home::Home;
use crate::pki::secrets::{ADMIN_KUBECONFIG, SECRET_ENTRIES};
use crate::pki::{self, Files, FolderError, KeptError, Leaf, SecretText};

/// Size of a kubeconfig, in bytes, beyond which it is not an install's.
const LARGEST: u64 = 1024 * 1024;

/// Flags that say where keys come from.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Keys")]
pub(super) struct KeysArgs {
    /// Folder with the keys; missing keys are created there, and nothing is written elsewhere [default:
    /// ~/.fleet/CONTROL_PLANE_NAME/pki]
    #[arg(long, value_name = "FOLDER", conflicts_with = "without_keys")]
    pki: Option<PathBuf>,

    /// Leave out the Secrets with keys, which you provide yourself; nothing is written on this machine
    #[arg(long)]
    pub(super) without_keys: bool,
}

/// The keys of a run.
pub(super) struct Keys {
    pub(super) files: Files,
    /// Remark about them for the user.
    note: String,
}

/// Returns whether an object is a Secret that holds keys or what is signed by them.
pub(super) fn holds_keys(object: &Object) -> bool {
    object.kind() == "Secret" && SECRET_ENTRIES.iter().any(|entry| entry.secret == object.name())
}

/// Makes a Secret with keys immutable, so that an API server refuses another identity in its place. All of them:
/// kubectl continues after the first refusal, and leaves of another authority would stop the control plane.
pub(super) fn make_keys_immutable(object: &mut Object) {
    if holds_keys(object) {
        object.json["immutable"] = true.into();
    }
}

/// The Secrets that hold these leaves.
fn secrets_of(leaves: impl Iterator<Item = Leaf>) -> Vec<&'static str> {
    let files: Vec<&str> = leaves.map(|leaf| leaf.leaf_store().stored_file()).collect();
    let mut secrets: Vec<&str> =
        SECRET_ENTRIES.iter().filter(|entry| files.contains(&entry.file)).map(|entry| entry.secret).collect();
    secrets.dedup();
    secrets
}

/// The objects without those that hold keys.
pub(super) fn remove_key_secrets(mut rendered: Rendered) -> Rendered {
    rendered.objects.retain(|object| !holds_keys(object));
    rendered
}

impl KeysArgs {
    /// Refuses a folder of keys where the cluster makes them.
    pub(super) fn check_keys_folder(&self, plan: &Plan) -> Result<(), CliError> {
        if self.pki.is_some() && plan.values.pki.source == PkiSource::InCluster {
            return Err(CliError::usage(
                "Usage",
                "`--pki` names a folder for keys, but `pki.source: InCluster` generates them in the cluster",
            )
            .hint("leave out `--pki`, or `pki.source: InCluster`"));
        }
        Ok(())
    }

    /// Returns whether keys are made in a folder that the output does not hold, for a Secret that is made of it.
    pub(super) fn is_made_for_others(&self, plan: &Plan) -> bool {
        self.pki.is_some() && plan.values.pki.source == PkiSource::Existing
    }

    /// The keys that are printed, completed in their folder and made there if need be.
    pub(super) fn complete_keys(
        &self,
        home: &Home,
        plan: &Plan,
        endpoint: &Endpoint,
        is_elsewhere: impl FnOnce() -> CliError,
    ) -> Result<Keys, CliError> {
        let folder = self.output_keys_folder(home, plan);
        if self.pki.is_none() {
            let elsewhere = find_keys::are_elsewhere(home, &plan.name);
            if elsewhere.map_err(|error| local_kubeconfig_error(&plan.name, &error))? {
                return Err(is_elsewhere());
            }
        }
        let completed = complete_keys::complete_in(&folder, plan, endpoint, Timestamp::now());
        let completed = completed.map_err(|error| keys_folder_error(&folder, &error))?;
        let folder = folder.display();
        let note = if completed.new_authorities {
            format!(
                "new keys were created in {folder}: they are a new identity, which no running control plane accepts"
            )
        } else {
            let again = secrets_of(completed.issued.iter().map(|(leaf, _)| *leaf).chain(completed.rewritten));
            let mut note = format!("keys found in {folder}");
            if !again.is_empty() {
                note += &format!(
                    "; new since the last output: {0}. These Secrets are immutable: run `kubectl -n {1} delete secret \
                     {2}` before you apply the output",
                    again.join(", "),
                    plan.package.namespace,
                    again.join(" ")
                );
            }
            note
        };
        let note = if self.is_made_for_others(plan) { format!("{note}; {}", from_folder(plan, &folder)) } else { note };
        Ok(Keys { files: completed.files, note })
    }

    /// The keys for an output that does not hold them: those of the folder as far as it has any, and nothing is written.
    pub(super) fn read_keys(&self, home: &Home, plan: &Plan, endpoint: &Endpoint) -> Result<Keys, CliError> {
        let namespace = &plan.package.namespace;
        let elsewhere = match plan.values.pki.source {
            PkiSource::Installer => None,
            PkiSource::Existing => Some(format!(
                "the output contains no keys: Secret {} must exist in namespace {namespace}, with all of them",
                plan.values.pki.existing_secret.as_deref().unwrap_or_default()
            )),
            PkiSource::InCluster => Some(format!(
                "the output contains no keys: a Job generates them in namespace {namespace}. `fleetctl kubeconfig {} --namespace {namespace}` writes the kubeconfig when they exist",
                plan.name
            )),
        };
        if let Some(note) = elsewhere {
            return Ok(Keys { files: pki::placeholder_files(), note });
        }
        if self.without_keys {
            let secrets: std::collections::BTreeSet<&str> = SECRET_ENTRIES.iter().map(|entry| entry.secret).collect();
            let secrets = secrets.into_iter().collect::<Vec<_>>().join(", ");
            let note = format!("the output contains no keys: the Secrets {secrets} must exist before the pods start");
            return Ok(Keys { files: pki::placeholder_files(), note });
        }
        let folder = self.output_keys_folder(home, plan);
        let found = find_keys::from_folder(&folder).map_err(|error| local_file_error(&error))?;
        if !pki::Authorities::any_in(&found) {
            let note = format!(
                "{} contains no keys, and this output creates none: its checksums are computed from placeholders",
                folder.display()
            );
            return Ok(Keys { files: pki::placeholder_files(), note });
        }
        let completed = complete_keys::complete_key_set(&found, plan, endpoint, Timestamp::now());
        let completed = completed.map_err(|error| local_keys(&folder, &error))?;
        Ok(Keys { files: completed.files, note: format!("keys found in {}", folder.display()) })
    }

    fn output_keys_folder(&self, home: &Home, plan: &Plan) -> PathBuf {
        self.pki.clone().unwrap_or_else(|| home.keys_folder(&plan.name))
    }

    /// Says where the keys of an output are, and writes the kubeconfig that goes with them.
    pub(super) fn report_keys(
        &self,
        ui: &Ui,
        home: &Home,
        plan: &Plan,
        keys: &Keys,
        printed: bool,
    ) -> Result<(), CliError> {
        ui.print_note(&keys.note);
        if !printed {
            return Ok(());
        }
        let folder = self.output_keys_folder(home, plan);
        let beside = folder.join(ADMIN_KUBECONFIG);
        let file = if self.pki.is_some() { beside.clone() } else { home.kubeconfig_path(&plan.name) };
        let is_written = self.pki.is_some()
            || write_template_kubeconfig(home, plan, &keys.files).map_err(|error| local_file_error(&error))?;
        ui.print_note(&if is_written {
            format!("The output contains private keys. The kubeconfig of {} is {}", plan.name, file.display())
        } else {
            format!(
                "The output contains private keys. {} was written by an install and is not changed; the kubeconfig of these manifests is {}",
                file.display(),
                beside.display()
            )
        });
        Ok(())
    }
}

/// Returns the instruction to make the Secret with the keys in a folder.
fn from_folder(plan: &Plan, folder: &impl fmt::Display) -> String {
    let secret = plan.values.pki.existing_secret.as_deref().unwrap_or_default();
    format!(
        "create the Secret from them: `kubectl -n {} create secret generic {secret} --from-file={folder}`",
        plan.package.namespace
    )
}

/// Writes the kubeconfig into the folder of the control plane, unless one is there that this command has not written.
/// Returns whether the one that exists is that of these keys.
fn write_template_kubeconfig(home: &Home, plan: &Plan, files: &Files) -> Result<bool, FolderError> {
    let text = files.get(ADMIN_KUBECONFIG).unwrap_or_default();
    let (keys, file) = (home.keys_folder(&plan.name), home.kubeconfig_path(&plan.name));
    let former = file::read_linked_text(&file, LARGEST)?.map(SecretText::new);
    if let Some(former) = &former {
        if former.expose() == text {
            return Ok(true);
        }
        let mark = pki::read_file(&keys, TEMPLATE_MARK)?;
        if mark.is_none_or(|mark| mark.expose().trim() != full_digest(former.expose().as_bytes())) {
            return Ok(false);
        }
    }
    pki::write_file(&keys, TEMPLATE_MARK, &format!("{}\n", full_digest(text.as_bytes())))?;
    pki::write_file(&home.control_plane(&plan.name), "fleet-kubeconfig", text)?;
    Ok(true)
}

fn keys_folder_error(folder: &Path, error: &KeptError) -> CliError {
    match error {
        KeptError::Folder(error) => local_file_error(error),
        KeptError::Keys(error) => local_keys(folder, error),
    }
}

/// A kubeconfig on this machine that may be an install's, and cannot be read.
fn local_kubeconfig_error(name: &ControlPlaneName, error: &LocalKubeconfigError) -> CliError {
    CliError::new(Exit::Failed, "LocalFile", "a local file cannot be used")
        .because(error)
        .hint(local_kubeconfig_remedy(name, error))
}
