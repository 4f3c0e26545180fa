//! `--for`: what Argo CD and Flux read on the objects that they apply out of a Git repository.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde_json::Value;

use super::keys;
use crate::api::labels::{LABEL_INSTANCE, LABEL_KEEP};
use crate::chart::Object;
use crate::cli::output::error::CliError;

/// Argo CD: the order in which objects are applied; what is of one number is ready before the next begins.
const SYNC_WAVE: &str = "argocd.argoproj.io/sync-wave";
/// Argo CD: how an object is applied and removed.
const SYNC_OPTIONS: &str = "argocd.argoproj.io/sync-options";
/// Flux: `disabled` on an object that stays when it leaves the repository.
const FLUX_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";

/// The program that applies manifests out of a Git repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum GitOps {
    /// Argo CD: sync waves, server-side apply, and no pruning of what data and keys hang on
    Argocd,
    /// Flux: no pruning of what data and keys hang on
    Flux,
}

impl GitOps {
    /// Makes objects ready for a repository.
    pub(super) fn prepare(self, objects: &mut [Object]) -> Result<(), CliError> {
        objects.iter_mut().for_each(|object| self.annotate(object));
        if objects.iter().any(keys::holds_keys) { Err(keys_in_git()) } else { Ok(()) }
    }

    /// Adds to an object what the program reads.
    fn annotate(self, object: &mut Object) {
        let is_kept = object.kind() == "Namespace" || holds_data(&object.json);
        match self {
            Self::Argocd => {
                let options =
                    if is_kept { "ServerSideApply=true,Prune=false,Delete=false" } else { "ServerSideApply=true" };
                let wave = object.stage.to_string();
                set(&mut object.json, &BTreeMap::from([(SYNC_WAVE, wave.as_str()), (SYNC_OPTIONS, options)]));
                untrack_claims(&mut object.json);
            }
            Self::Flux if is_kept => set(&mut object.json, &BTreeMap::from([(FLUX_PRUNE, "disabled")])),
            Self::Flux => {}
        }
    }
}

/// Private keys would stay in the history of a repository.
pub(super) fn keys_in_git() -> CliError {
    CliError::usage("KeysInGit", "the output would hold private keys, and Git never forgets them")
        .hint("have them made in the cluster: `--set pki.source=InCluster`")
        .hint("or name a Secret that comes from elsewhere: `--set pki.source=Existing --set pki.existingSecret=NAME`")
        .hint("or leave them out, for SOPS, Sealed Secrets or External Secrets to bring them: `--without-keys`")
        .hint("nothing was written")
}

fn holds_data(object: &Value) -> bool {
    !object["metadata"]["labels"][LABEL_KEEP].is_null()
}

fn set(object: &mut Value, annotations: &BTreeMap<&str, &str>) {
    let of_object = &mut object["metadata"]["annotations"];
    if !of_object.is_object() {
        *of_object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in annotations {
        of_object[*key] = Value::from(*value);
    }
}

/// Takes the label by which Argo CD before version 3 knows its own objects from the claims that a StatefulSet makes: with
/// it, claims would count as objects that have left the repository where the Application has the name of the control
/// plane, and be pruned with the data.
fn untrack_claims(object: &mut Value) {
    for claim in object["spec"]["volumeClaimTemplates"].as_array_mut().into_iter().flatten() {
        if let Some(labels) = claim["metadata"]["labels"].as_object_mut() {
            labels.remove(LABEL_INSTANCE);
        }
    }
}
