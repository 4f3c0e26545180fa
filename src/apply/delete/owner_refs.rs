//! Objects with our labels that others created: they are kept, and so are the pods and the claims that they create.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::found::Found;
use crate::api::kinds::{Kind, split_api_version};
use crate::apply::engine::Engine;
use crate::apply::error::{Error, Foreign};
use crate::k8s::managed_fields;
use crate::k8s::object::{items_at, object_uid, text_at};
use crate::k8s::request::server::{Selection, Server};

/// Kinds that make pods, by themselves or by one another.
const WORKLOADS: [(&str, &str); 5] =
    [("apps", "DaemonSet"), ("apps", "Deployment"), ("apps", "ReplicaSet"), ("apps", "StatefulSet"), ("batch", "Job")];

/// The objects with the owner's labels, those of dependents apart.
#[derive(Debug, Default)]
pub(crate) struct Labelled {
    /// Objects that are ours by the record, or by our fields in them.
    pub(crate) ours: Vec<Found>,
    /// Objects that others made: a copy of one of ours, or manifests that somebody else has applied.
    pub(crate) others: Vec<Found>,
}

impl Labelled {
    /// Refuses to remove an installation whose objects were all created by others, and a running one that others have
    /// applied: its self-made keys would be deleted while its pods still use them.
    pub(crate) fn not_only_others(&self) -> Result<(), Error> {
        let keys_only = self.ours.iter().all(|found| managed_fields::is_of_keys(&found.live));
        let runs = keys_only
            && self.others.iter().any(|found| WORKLOADS.iter().any(|(group, kind)| found.object.is_kind(group, kind)));
        if self.others.is_empty() || !(self.ours.is_empty() || runs) {
            return Ok(());
        }
        Err(made_by_others(self.others.iter()))
    }

    /// The claims without those of stateful sets that are not ours.
    pub(crate) fn without_others(&self, claims: Vec<Found>) -> Vec<Found> {
        let sets: Vec<&str> = self
            .others
            .iter()
            .filter(|o| o.object.is_kind("apps", "StatefulSet"))
            .map(|o| o.object.name.as_str())
            .collect();
        claims.into_iter().filter(|claim| !sets.iter().any(|set| claim_of(&claim.object.name, set))).collect()
    }
}

/// The error of a removal of which all objects are of others.
pub(super) fn made_by_others<'f>(objects: impl Iterator<Item = &'f Found>) -> Error {
    let foreign = objects.map(|found| Foreign {
        object: found.object.clone(),
        managers: managed_fields::list_managers(&found.live),
        install: None,
    });
    Error::MadeByOthers { objects: foreign.collect() }
}

impl Engine {
    /// The pods with our labels whose workload does not stand any more.
    pub(crate) async fn pods_that_go(&self, server: &Server) -> Result<Vec<Found>, Error> {
        let pods = self.list_dependents(server, &Kind::from_table("", "Pod")).await?;
        // One that nobody owns is not collected by anybody.
        let owned: Vec<Found> =
            pods.into_iter().filter(|pod| !items_at(&pod.live, "/metadata/ownerReferences").is_empty()).collect();
        if owned.is_empty() {
            return Ok(owned);
        }
        let mut standing = Standing::default();
        let mut above: BTreeSet<(String, String)> = owned.iter().filter_map(|pod| controller_kind(&pod.live)).collect();
        let mut asked = BTreeSet::new();
        while let Some((group, kind)) = above.pop_first() {
            if !WORKLOADS.contains(&(&group, &kind)) || !asked.insert((group.clone(), kind.clone())) {
                continue;
            }
            let kind = Kind::from_table(&group, &kind);
            // Without our labels, too: one that was taken over and given back has them no more, and its pods still do.
            let namespace = Some(self.owner.namespace.as_str());
            let selection = Selection { namespace, metadata_only: true, ..Selection::default() };
            match server.list_objects(&kind, &selection).await {
                Ok(workloads) => {
                    for workload in workloads {
                        above.extend(controller_kind(&workload));
                        standing.add_standing_workload(&workload);
                    }
                }
                // What may not be looked at counts as gone with ours: its pods are waited for.
                Err(error) if error.is_forbidden() => {}
                Err(error) => return Err(Error::from_api_error(format!("list {}", kind.plural), error)),
            }
        }
        Ok(owned.into_iter().filter(|pod| !standing.has_live_controller(&pod.live)).collect())
    }
}

/// Workloads that are not being deleted, by uid, each with the uid of what controls it.
#[derive(Debug, Default)]
struct Standing(BTreeMap<String, Option<String>>);

impl Standing {
    fn add_standing_workload(&mut self, workload: &Value) {
        if text_at(workload, "/metadata/deletionTimestamp").is_none() {
            self.0.insert(object_uid(workload).to_owned(), controller_uid(workload).map(str::to_owned));
        }
    }

    /// Returns whether the uppermost controller that an object comes from stands.
    fn has_live_controller(&self, object: &Value) -> bool {
        let mut above = controller_uid(object);
        while let Some(uid) = above {
            match self.0.get(uid) {
                None => return false,
                Some(None) => return true,
                Some(Some(next)) => above = Some(next),
            }
        }
        false
    }
}

pub(crate) fn controlling_owner(object: &Value) -> Option<&Value> {
    let mut owners = items_at(object, "/metadata/ownerReferences").iter();
    owners.find(|owner| owner.get("controller").and_then(Value::as_bool) == Some(true))
}

fn controller_uid(object: &Value) -> Option<&str> {
    text_at(controlling_owner(object)?, "/uid")
}

/// The group and the kind of the controller.
fn controller_kind(object: &Value) -> Option<(String, String)> {
    let owner = controlling_owner(object)?;
    let (group, _) = split_api_version(text_at(owner, "/apiVersion")?);
    Some((group.to_owned(), text_at(owner, "/kind")?.to_owned()))
}

/// Returns whether a claim has the name of one that a stateful set makes: `<template>-<set>-<ordinal>`.
pub(crate) fn claim_of(claim: &str, set: &str) -> bool {
    claim.rsplit_once('-').is_some_and(|(front, number)| {
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) && front.ends_with(&format!("-{set}"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(uid: &str, controller: Option<&str>) -> Value {
        let owners: Vec<Value> = controller.iter().map(|uid| json!({"uid": uid, "controller": true})).collect();
        json!({"metadata": {"uid": uid, "ownerReferences": owners}})
    }

    #[test]
    fn a_pod_stands_with_the_workload_at_the_upper_end() {
        let mut standing = Standing::default();
        let mut leaving = object("deployment-2", None);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        for workload in [
            object("deployment", None),
            object("set-of-it", Some("deployment")),
            object("set-of-one-that-is-gone", Some("deployment-1")),
            leaving,
            object("set-of-one-that-goes", Some("deployment-2")),
        ] {
            standing.add_standing_workload(&workload);
        }
        for (above, stands) in [
            (Some("set-of-it"), true),
            (Some("deployment"), true),
            (Some("set-of-one-that-is-gone"), false),
            (Some("set-of-one-that-goes"), false),
            (Some("unknown"), false),
            (None, false),
        ] {
            assert_eq!(standing.has_live_controller(&object("pod", above)), stands, "{above:?}");
        }
    }

    #[test]
    fn a_claim_is_told_by_the_name_of_its_set() {
        assert!(claim_of("etcd-data-etcd-0", "etcd") && claim_of("etcd-data-etcd-12", "etcd"));
        assert!(!claim_of("etcd-data-etcd-x", "etcd") && !claim_of("etcd-data-other-0", "etcd"));
        assert!(claim_of("data-etcd-0", "etcd") && claim_of("data-etcd-12", "etcd"));
        assert!(!claim_of("data-etcd-backup", "etcd") && !claim_of("data-other-0", "etcd"));
        assert!(!claim_of("etcd-0", "etcd"));
    }
}
