//! The removal of a control plane: reversible by default, with its data and its local folder only on request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Access;

use super::health;
use super::keys::find_keys;
use super::keys::local_files;
use super::keys::local_files::Folder;
use super::plan::OWNER_KIND;
use super::version::kubernetes_downgrade;
use crate::api::names::ControlPlaneName;
use crate::api::partial_list::Age;
use crate::api::util::file::{FileError, wrap_io_error};
use crate::apply::{self, Engine, Removal, Removed};
use crate::chart::patch::Patches;
use crate::check::inside::{self, Member};
use crate::install;
use crate::install::progress::Progress;
use crate::inventory::{Journal, Phase, Record, State};
use crate::k8s::ObjectRef;
use crate::pki::secrets::ADMIN_SECRET;

/// Time that the control plane may take to say which workload clusters are registered.
const ASKING: Duration = Duration::from_secs(5);

/// Plan of a removal.
#[derive(Debug)]
pub struct Planned {
    /// Objects that would be deleted; the PersistentVolumeClaims among them hold the data.
    pub objects: Vec<ObjectRef>,
    /// PersistentVolumes that still hold the data when their claims are gone, by their reclaim policy.
    pub retained: Vec<ObjectRef>,
    /// The namespace, unless it contains something else.
    pub namespace: Option<ObjectRef>,
    /// Treatment of the local folder where the data is deleted too.
    pub folder: Folder,
}

impl Planned {
    /// Returns whether nothing that would be deleted is in the cluster.
    pub const fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.namespace.is_none()
    }
}

/// Stage that a control plane has reached, as far as that can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No install of it has ended well.
    Unfinished,
    /// An install has ended well, and no removal has begun.
    Complete,
    /// A removal has begun.
    Removed,
}

impl Stage {
    /// Returns the stage by record and journal. With both lost, data says that there was an install: nobody knows of
    /// one that failed.
    fn from_state(state: &State, has_data: bool) -> Self {
        match &state.record {
            Some(Record { phase: Phase::Installed, .. }) => Self::Complete,
            Some(Record { phase: Phase::Removed, .. }) => Self::Removed,
            None if !has_data => Self::Unfinished,
            None if state.is_empty() => Self::Complete,
            None if state.journal.as_ref().is_some_and(Journal::is_removal) => Self::Removed,
            None => Self::Unfinished,
        }
    }
}

/// The control plane that a removal or a rollback is about.
pub type Target<'a> = install::installed::Target<'a, ControlPlaneName>;

impl Target<'_> {
    pub(super) fn removal_engine(&self, progress: &Arc<dyn Progress>) -> Engine {
        let charts = super::charts::control_plane_charts(self.name, self.namespace, self.client, &Patches::default());
        self.build_engine(OWNER_KIND, charts, self.home.journal_path(self.name), progress)
    }

    /// Returns the workload clusters that are registered.
    ///
    /// # Errors
    /// Reason that they could not be asked for.
    pub async fn list_registered_clusters(&self) -> Result<Vec<Member>, String> {
        let kubeconfig = find_keys::admin_kubeconfig(self.client, self.namespace.as_str(), self.name.as_str()).await;
        let kubeconfig = kubeconfig.map_err(|error| health::format_error_chain(&error))?;
        let Some(kubeconfig) = kubeconfig else {
            // Its data may know some all the same.
            return match self.read_stage().await.map_err(|error| health::format_error_chain(&error))? {
                Stage::Unfinished => Ok(Vec::new()),
                Stage::Removed => Err("it is not running".to_owned()),
                Stage::Complete => Err(format!("Secret {ADMIN_SECRET} does not exist")),
            };
        };
        let hub = health::connect_control_plane_api(&kubeconfig).await?;
        match tokio::time::timeout(ASKING, inside::list_registered_members(&hub, Age::Now)).await {
            Ok(members) => members.map_err(|error| health::format_error_chain(&error)),
            Err(_) => Err(format!("no answer within {} s", ASKING.as_secs())),
        }
    }

    /// Returns whether an install of it has ended well and no removal has begun: only then may it be expected to
    /// answer.
    pub async fn is_complete(&self) -> bool {
        // A record that cannot be read is no proof that there is nothing to lose.
        self.read_stage().await.map_or(true, |stage| stage == Stage::Complete)
    }

    async fn read_stage(&self) -> Result<Stage, apply::Error> {
        let engine = self.build_reader(OWNER_KIND);
        let state = engine.read_state().await?;
        let has_data = state.record.is_none() && !engine.list_bound_volume_claims().await?.is_empty();
        Ok(Stage::from_state(&state, has_data))
    }

    /// The plan of a removal, made by reads alone.
    pub async fn plan_uninstall(
        &self,
        removal: Removal,
        progress: &Arc<dyn Progress>,
    ) -> Result<Planned, apply::Error> {
        let engine = self.removal_engine(progress);
        let Removed { deleted: objects, kept, .. } = engine.plan_removal(removal).await?;
        let retained = kept.into_iter().map(|kept| kept.object).filter(|object| object.is_kind("", "PersistentVolume"));
        let state = engine.read_state().await?;
        let namespace = engine.made_namespace().await?;
        let mut planned = Planned { objects, retained: retained.collect(), namespace, folder: Folder::None };
        planned.folder = self.decide_folder(&state, &planned).await;
        Ok(planned)
    }

    /// Returns the treatment of the local folder, judged by what is in the cluster; the folder stays where nothing is
    /// there, or where the keys cannot be read.
    async fn decide_folder(&self, state: &State, planned: &Planned) -> Folder {
        let is_absent = planned.is_empty() && state.is_empty();
        if !is_absent
            && let Ok(files) = find_keys::from_cluster(self.client, self.namespace.as_str(), self.name.as_str()).await
        {
            let server = state.record.as_ref().and_then(|record| record.release.facts.get("server"));
            let authority = local_files::find_ca_certificate(&files);
            return Folder::from_home(self.home, self.name, authority.as_deref(), server.map(String::as_str));
        }
        Folder::of_unknown_owner(self.home.control_plane(self.name))
    }

    /// Removes the control plane and searches the cluster for leftovers.
    pub async fn remove_control_plane(
        &self,
        removal: Removal,
        progress: &Arc<dyn Progress>,
    ) -> Result<Removed, apply::Error> {
        let engine = self.removal_engine(progress);
        let state = engine.read_state().await?;
        // What cannot be seen keeps nothing from being removed.
        let data_version =
            kubernetes_downgrade::version_of_data(&engine, self.namespace, &state).await.unwrap_or_default();
        engine.uninstall(Removal { data_version, ..removal }).await
    }

    /// Removes the local folder; returns its path when there was one.
    ///
    /// # Errors
    /// [`FileError`] where a part of it cannot be removed.
    pub fn remove_folder(&self) -> Result<Option<PathBuf>, FileError> {
        let folder = self.home.control_plane(self.name);
        match std::fs::remove_dir_all(&folder) {
            Ok(()) => Ok(Some(folder)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(wrap_io_error("remove", &find_refusing_folder(&folder))(error)),
        }
    }
}

/// Finds what keeps a folder from being removed: the first folder in it that cannot be written to, else the folder itself.
fn find_refusing_folder(folder: &Path) -> PathBuf {
    if refuses_changes(folder) {
        return folder.to_owned();
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).find(|path| refuses_changes(path)).unwrap_or_else(|| folder.to_owned())
}

fn refuses_changes(folder: &Path) -> bool {
    rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_err()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The stage with a record of this phase and a journal of this command.
    fn find_removal_stage(phase: Option<&str>, command: Option<&str>, has_data: bool) -> Stage {
        let record = phase.map(|phase| {
            json!({"format": 1, "installUid": "u", "phase": phase, "namespaceCreated": true,
                "owner": {"kind": OWNER_KIND, "name": "demo", "namespace": "fleet"}, "written": "", "inventory": [],
                "release": {"chart": "", "version": "", "valuesDigest": ""}})
        });
        let journal = command
            .map(|command| json!({"run": "", "command": command, "started": "", "installUid": "u", "steps": []}));
        let state = State {
            record: record.map(|record| serde_json::from_value(record).unwrap()),
            journal: journal.map(|journal| serde_json::from_value(journal).unwrap()),
            ..State::default()
        };
        Stage::from_state(&state, has_data)
    }

    #[test]
    fn data_of_which_nothing_is_recorded_counts_as_that_of_a_complete_control_plane() {
        assert_eq!(find_removal_stage(Some("installed"), None, false), Stage::Complete);
        assert_eq!(find_removal_stage(Some("removed"), None, false), Stage::Removed);
        assert_eq!(find_removal_stage(None, None, true), Stage::Complete);
        assert_eq!(find_removal_stage(None, None, false), Stage::Unfinished, "there is nothing to lose");
        // A first install that was interrupted, and a removal begun after the record was lost.
        assert_eq!(find_removal_stage(None, Some("install"), true), Stage::Unfinished);
        assert_eq!(find_removal_stage(None, Some("uninstall"), true), Stage::Removed);
    }
}
