//! `--for`: what Argo CD and Flux read on the objects that they apply out of a Git repository.

use clap::ValueEnum;
use serde_json::Value;

use super::keys;
use crate::api::labels::LABEL_KEEP;
use crate::chart::Object;
use crate::cli::output::error::CliError;

/// Argo CD: the order in which objects are applied; what is of one number is ready before the next begins.
const SYNC_WAVE: &str = "argocd.argoproj.io/sync-wave";
/// Argo CD: how an object is applied and removed.
const SYNC_OPTIONS: &str = "argocd.argoproj.io/sync-options";
/// Sync options of an object that neither a sync nor the deletion of an Application removes.
const KEPT: &str = "Prune=false,Delete=false";
/// Flux: `disabled` on an object that stays when it leaves the repository.
const FLUX_PRUNE: &str = "kustomize.toolkit.fluxcd.io/prune";

/// The program that applies manifests out of a Git repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum GitOps {
    /// Argo CD: sync waves, server-side apply, and no pruning of objects with data and keys
    Argocd,
    /// Flux: no pruning of objects with data and keys
    Flux,
}

impl GitOps {
    /// Makes objects ready for a repository.
    pub(super) fn prepare_objects(self, objects: &mut [Object]) -> Result<(), CliError> {
        for object in objects.iter_mut() {
            self.annotate_object(object);
        }
        if objects.iter().any(keys::holds_keys) { Err(keys_in_git()) } else { Ok(()) }
    }

    /// Adds to an object what the program reads.
    fn annotate_object(self, object: &mut Object) {
        let is_kept = object.kind() == "Namespace" || holds_data(&object.json);
        match self {
            Self::Argocd => {
                let kept = if is_kept { format!(",{KEPT}") } else { String::new() };
                let options = format!("ServerSideApply=true{kept}");
                set_annotations(&mut object.json, &[(SYNC_WAVE, &object.stage.to_string()), (SYNC_OPTIONS, &options)]);
                keep_claims(&mut object.json);
            }
            Self::Flux if is_kept => set_annotations(&mut object.json, &[(FLUX_PRUNE, "disabled")]),
            Self::Flux => {}
        }
    }
}

/// The error of an output with private keys, which would stay in the history of a repository.
pub(super) fn keys_in_git() -> CliError {
    CliError::usage("KeysInGit", "the output would contain private keys, and Git history keeps them")
        .hint("generate them in the cluster: `--set pki.source=InCluster`")
        .hint("or name an existing Secret: `--set pki.source=Existing --set pki.existingSecret=NAME`")
        .hint("or leave them out and provide them with SOPS, Sealed Secrets or External Secrets: `--without-keys`")
        .hint("nothing was written")
}

fn holds_data(object: &Value) -> bool {
    !object["metadata"]["labels"][LABEL_KEEP].is_null()
}

fn set_annotations(object: &mut Value, annotations: &[(&str, &str)]) {
    let of_object = &mut object["metadata"]["annotations"];
    if !of_object.is_object() {
        *of_object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in annotations {
        of_object[*key] = Value::from(*value);
    }
}

/// Makes Argo CD keep the PersistentVolumeClaims of a StatefulSet, and so the data. Each gets the labels of the
/// selector, and with them the one by which Argo CD before version 3 knows its own objects: where the Application has
/// the name of the control plane, a claim whose StatefulSet went would count as an object that has left the repository.
fn keep_claims(object: &mut Value) {
    let claims = object.pointer_mut("/spec/volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        set_annotations(claim, &[(SYNC_OPTIONS, KEPT)]);
    }
}
