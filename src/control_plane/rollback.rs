//! Undoing a run that was interrupted: what it made goes, what it changed gets its former fields back.

use std::sync::Arc;

use super::installed_status;
use super::uninstall::Target;
use super::version::kubernetes_downgrade;
use super::version::upgrade::UpgradeRefused;
use crate::apply::{self, RolledBack, UndoPlan};
use crate::install::progress::Progress;
use crate::inventory::{self, Journal, State};

/// Outcome of a rollback.
#[derive(Debug)]
pub enum Outcome {
    /// No run was interrupted; what is installed, if anything, stays.
    NothingToUndo {
        /// The service version that is installed.
        installed: Option<String>,
        /// Whether its record is there; without, labels tell the version.
        recorded: bool,
        /// The field managers of what others applied, which has no record; none where fleetctl installed it.
        applied_by: Vec<String>,
    },
    /// The run that was interrupted was an uninstall: what it deleted is gone.
    WasUninstall {
        /// Time at which the uninstall began, RFC 3339.
        started: String,
        /// The service version that it removes, where it is known.
        version: Option<String>,
    },
    /// There is no way back, for this reason.
    Barred(UpgradeRefused),
    /// Undone, as far as the problems in it say.
    Undone {
        /// Time at which the interrupted run began, RFC 3339; empty where only a namespace tells of it.
        started: String,
        /// Objects that were undone, and those that could not be.
        result: RolledBack,
        /// The service version that is installed again.
        installed: Option<String>,
    },
}

/// Finding of a rollback before it does anything.
#[derive(Debug)]
pub enum Prospect {
    /// There is nothing that the rollback could do.
    Ends(Outcome),
    /// The rollback would do this.
    Undo(Box<Undo>),
}

/// An undo that is planned.
#[derive(Debug)]
pub struct Undo {
    /// Time at which the interrupted run began, RFC 3339; empty where only a namespace tells of it.
    pub started: String,
    /// Plan of what would be done.
    pub plan: UndoPlan,
    /// The state that the plan was made of; the undo refuses any other.
    seen: State,
    copy: Option<Journal>,
}

impl Undo {
    /// Returns the state with the journal for an undo: the cluster's, else the local copy if the cluster has lost its
    /// own.
    fn known_state(&self) -> State {
        State { journal: self.seen.journal.clone().or_else(|| self.copy.clone()), ..self.seen.clone() }
    }
}

impl Target<'_> {
    /// Plans the undo of the interrupted run, by reads alone.
    ///
    /// # Errors
    /// [`apply::Error::JournalRefused`] where no run of this control plane can have written the journal, and what the server
    /// refuses to read.
    pub async fn plan_rollback(&self, progress: &Arc<dyn Progress>) -> Result<Prospect, apply::Error> {
        let engine = self.removal_engine(progress);
        let seen = engine.read_state().await?;
        let copy = engine.copy_of_journal(&seen).await?;
        let mut undo = Undo { started: String::new(), plan: UndoPlan::default(), seen, copy };
        let known = undo.known_state();
        if let Some(journal) = known.journal.as_ref().filter(|journal| journal.is_removal()) {
            let version = known.record.as_ref().map(|record| record.release.version.clone());
            return Ok(Prospect::Ends(Outcome::WasUninstall { started: journal.started.clone(), version }));
        }
        undo.plan = engine.plan_undo(&undo.seen, undo.copy.as_ref()).await?;
        let known = engine.discard_untrusted_steps(known);
        if let Some(refused) = kubernetes_downgrade::from_journal(&engine, self.namespace, &known).await? {
            return Ok(Prospect::Ends(Outcome::Barred(refused)));
        }
        undo.started = known.journal.map(|journal| journal.started).unwrap_or_default();
        Ok(Prospect::Undo(Box::new(undo)))
    }

    /// Undoes the interrupted run as planned.
    ///
    /// # Errors
    /// [`inventory::Error::PlanOutdated`] where something was written since, such as by a run that held the lock until now:
    /// nothing was undone then. [`inventory::Error::Locked`] while that run is at work, and what the server refuses.
    pub async fn undo_interrupted_run(
        &self,
        undo: Undo,
        progress: &Arc<dyn Progress>,
    ) -> Result<Outcome, apply::Error> {
        let engine = self.removal_engine(progress);
        let known = undo.known_state();
        let Undo { started, seen, copy, .. } = undo;
        let result = engine.rollback_of(seen, copy).await?;
        let record = known.record.filter(|record| record.phase == inventory::Phase::Installed);
        let recorded = record.is_some();
        let installed = match record {
            None => installed_status::read_labelled_version(self.client, self.name, self.namespace).await,
            Some(record) => Some(record.release.version),
        };
        if known.journal.is_none() && result.undone.is_empty() && result.problems.is_empty() {
            let applied_by =
                if recorded { Vec::new() } else { inventory::applied_by(self.client, &engine.owner).await };
            return Ok(Outcome::NothingToUndo { installed, recorded, applied_by });
        }
        if result.problems.is_empty() {
            // Only what is empty by now goes: keys that `template` made, or a kubeconfig, stay.
            let _ = fs_err::remove_dir(self.home.control_plane(self.name));
        }
        Ok(Outcome::Undone { started, result, installed })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::labels::{LABEL_APP_VERSION, LABEL_INSTALL};
    use crate::install::fleet_home::Home;
    use crate::install::progress::Silent;
    use crate::inventory::HeldLock;

    /// A cluster in which the API server of version v0.9.0 runs, and the record of it is lost.
    fn client() -> Client {
        let image = "registry.example/kube-apiserver:v1.31.4";
        let api_server = json!({"containers": [{"name": "apiserver", "image": image}]});
        let status = json!({"containerStatuses": [{"name": "apiserver", "state": {"running": {}}}]});
        let pods = json!({"metadata": {}, "items": [{"spec": api_server, "status": status}]});
        let labels = json!({LABEL_INSTALL: "demo", LABEL_APP_VERSION: "v0.9.0"});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "apiserver", "namespace": "fleet", "labels": labels},
            "spec": {"template": {"spec": api_server}}});
        let annotations = json!({"fleet-scheduler.io/namespace-created-by": "u"});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": "fleet", "annotations": annotations}});
        let missing = json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        let written = json!({"metadata": {"uid": "s", "resourceVersion": "1"}});
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let last = request.uri().path().rsplit('/').next().unwrap_or_default();
            let (code, found): (u16, &Value) = match last {
                _ if request.method() != http::Method::GET => (200, &written),
                "pods" => (200, &pods),
                "apiserver" => (200, &deployment),
                "fleet" => (200, &namespace),
                _ => (404, &missing),
            };
            let answer = http::Response::builder().status(code).body(Body::from(found.to_string().into_bytes()));
            async { answer }
        });
        Client::new(service, "fleet")
    }

    /// Outcome of a rollback by a copy of the journal on this machine with this step.
    async fn undone_by(step: Value) -> Outcome {
        let (folder, name) = (tempfile::tempdir().unwrap(), "demo".parse().unwrap());
        let home = Home::from_path(folder.path());
        let journal = home.journal_path(&name);
        fs_err::create_dir_all(journal.parent().unwrap()).unwrap();
        let head = json!({"run": "r", "command": "install", "started": "then", "installUid": "u"});
        fs_err::write(&journal, format!("{head}\n{step}\n")).unwrap();
        let (client, namespace) = (client(), "fleet".parse().unwrap());
        let (timeout, lock_wait) = (Duration::from_secs(30), Duration::ZERO);
        let held = HeldLock::default();
        let target =
            Target { name: &name, namespace: &namespace, client: &client, home: &home, timeout, lock_wait, held };
        let progress: Arc<dyn Progress> = Arc::new(Silent);
        match target.plan_rollback(&progress).await.unwrap() {
            Prospect::Ends(outcome) => outcome,
            Prospect::Undo(undo) => target.undo_interrupted_run(*undo, &progress).await.unwrap(),
        }
    }

    #[tokio::test]
    async fn there_is_no_way_back_by_a_copy_of_the_journal_where_there_is_none_by_the_journal() {
        let containers = json!([{"name": "apiserver", "image": "registry.example/kube-apiserver:v1.25.4"}]);
        let outcome = undone_by(json!({"group": "apps", "kind": "Deployment", "namespace": "fleet",
            "name": "apiserver", "apiVersion": "apps/v1", "undo": "reapply",
            "patch": {"spec": {"template": {"spec": {"containers": containers}}}}}))
        .await;
        assert!(matches!(outcome, Outcome::Barred(UpgradeRefused::Stored { .. })), "{outcome:?}");
    }

    #[tokio::test]
    async fn what_is_installed_is_told_by_its_labels_where_its_record_is_lost() {
        let outcome = undone_by(json!({"kind": "ConfigMap", "namespace": "fleet", "name": "fleet-bootstrap",
            "apiVersion": "v1", "undo": "delete"}))
        .await;
        let Outcome::Undone { started, result, installed } = outcome else { panic!("{outcome:?}") };
        assert!(result.problems.is_empty(), "{:?}", result.problems);
        assert_eq!((started.as_str(), installed.as_deref()), ("then", Some("v0.9.0")));
    }
}
