//! Objects of others in a namespace whose source was deleted: with any of them in it the namespace is kept.
//!
//! Objects of the kinds that can be placed are listed. Secrets may not be, nor may kinds that this agent does not know: those are
//! counted by the cluster itself, with a ResourceQuota that limits nothing and is there for as long as it takes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ResourceQuota;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResourceList, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::context::{Context, is_listed};
use super::task::CopyKey;
use crate::api::first_of::first_of;
use crate::api::kinds::split_api_version;
use crate::api::labels::{AGENT_MANAGER, LABEL_PLACED_BY};
use crate::api::placeable::Kinds;
use crate::k8s::connect::daemon_client::{CallError, call_with_timeout};
use crate::k8s::request::pages::all_pages;

/// Name of the quota that counts.
const QUOTA: &str = "fleet-agent-contents";
/// Limit of each kind, which nobody reaches.
const UNLIMITED: &str = "1000000000";
/// Longest name behind `count/`.
const LONGEST: usize = 63;
/// Time that the cluster has to count.
const COUNTING: Duration = Duration::from_secs(60);
/// Age at which a quota is of an earlier attempt: its counts may be old.
const OLD: Duration = Duration::from_secs(300);
/// Kinds whose objects Kubernetes makes for those of others, and removes with them.
const MADE_FOR_OTHERS: [(&str, &str); 6] = [
    ("", "endpoints"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("discovery.k8s.io", "endpointslices"),
    ("apps", "controllerrevisions"),
    ("coordination.k8s.io", "leases"),
];

/// Contents of a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// Nothing but what Kubernetes puts into each namespace.
    Nothing,
    /// Copies that are to be removed first, or objects that are being counted; with what is waited for.
    Waiting(String),
    /// Objects of others, or objects that nobody could count; as a clause.
    Foreign(String),
}

/// Finds out what is in a namespace. `secrets` are the names of the copied Secrets that are still in it.
///
/// # Errors
/// A request that failed; nothing is known then.
pub async fn inspect_namespace(context: &Context, namespace: &str, secrets: &[String]) -> Result<Contents, CallError> {
    let listed = Listed::list_in_namespace(context, namespace).await?;
    if !listed.foreign.is_empty() {
        return Ok(Contents::Foreign(format!(
            "it contains objects that are not copies: {}",
            first_of(&listed.foreign, 3, ", ")
        )));
    }
    let secrets = secrets.iter().map(|name| format!("Secret {namespace}/{name}"));
    let own: Vec<String> = listed.own.into_iter().chain(secrets).collect();
    if !own.is_empty() {
        return Ok(Contents::Waiting(format!("it still contains copies: {}", first_of(&own, 3, ", "))));
    }
    match count_foreign_objects(context, namespace).await {
        Err(error) if error.status_code() == Some(403) => {
            Ok(Contents::Foreign(format!("the agent cannot list the contents of the namespace: {error}")))
        }
        answer => answer,
    }
}

/// Removes the counting quota if the namespace is kept.
///
/// # Errors
/// The failed request.
pub async fn stop_counting(context: &Context, namespace: &str) -> Result<(), CallError> {
    match call_with_timeout(quotas_api(context, namespace).delete(QUOTA, &DeleteParams::default())).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_gone() || error.status_code() == Some(403) => Ok(()),
        Err(error) => Err(error),
    }
}

fn quotas_api(context: &Context, namespace: &str) -> Api<ResourceQuota> {
    Api::namespaced(context.local.clone(), namespace)
}

/// Has the cluster count, or reads what it has counted.
async fn count_foreign_objects(context: &Context, namespace: &str) -> Result<Contents, CallError> {
    let waiting = Contents::Waiting("the agent is still counting the contents of the namespace".to_owned());
    let Some(quota) = call_with_timeout(quotas_api(context, namespace).get_opt(QUOTA)).await? else {
        let hard = counted_kinds(context).await?;
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota",
            "metadata": { "name": QUOTA, "namespace": namespace, "labels": { LABEL_PLACED_BY: context.placed_by } },
            "spec": { "hard": hard },
        });
        let params = PatchParams::apply(AGENT_MANAGER).force();
        call_with_timeout(quotas_api(context, namespace).patch(QUOTA, &params, &Patch::Apply(&quota))).await?;
        return Ok(waiting);
    };
    let age = quota.creation_timestamp().map_or(Duration::ZERO, |at| {
        Duration::from_secs(u64::try_from(Timestamp::now().as_second() - at.0.as_second()).unwrap_or(0))
    });
    if age >= OLD {
        stop_counting(context, namespace).await?;
        return Ok(waiting);
    }
    let empty = BTreeMap::new();
    let hard = quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()).unwrap_or(&empty);
    let used = quota.status.as_ref().and_then(|status| status.used.as_ref()).unwrap_or(&empty);
    let (foreign, uncounted) = evaluate_counts(hard, used);
    if !foreign.is_empty() {
        return Ok(Contents::Foreign(format!(
            "it contains objects that are not copies: {}",
            first_of(&foreign, 5, ", ")
        )));
    }
    if uncounted.is_empty() {
        return Ok(Contents::Nothing);
    }
    if age < COUNTING {
        return Ok(waiting);
    }
    let kinds = first_of(&uncounted, 5, ", ");
    Ok(Contents::Foreign(format!("the cluster did not count the objects of these kinds in the namespace: {kinds}")))
}

/// Returns how many objects there are of which kinds, and the kinds that were not counted.
fn evaluate_counts(hard: &BTreeMap<String, Quantity>, used: &BTreeMap<String, Quantity>) -> (Vec<String>, Vec<String>) {
    let (mut foreign, mut uncounted) = (Vec::new(), Vec::new());
    for key in hard.keys() {
        let kind = key.trim_start_matches("count/");
        // The quota itself is there.
        let own = u64::from(kind == "resourcequotas");
        // Large numbers have a unit.
        match used.get(key).map(|used| (used.0.parse::<u64>(), &used.0)) {
            Some((Ok(number), _)) if number <= own => {}
            Some((Ok(number), _)) => foreign.push(format!("{} {kind}", number - own)),
            Some((Err(_), many)) => foreign.push(format!("{many} {kind}")),
            None => uncounted.push(kind.to_owned()),
        }
    }
    (foreign, uncounted)
}

/// Returns the kinds that are counted, each with its limit: all that live in namespaces, can be made by users, and are not listed.
async fn counted_kinds(context: &Context) -> Result<BTreeMap<String, &'static str>, CallError> {
    let client = &context.local;
    let mut found = BTreeMap::new();
    let core = call_with_timeout(client.list_core_api_resources("v1")).await?;
    found.extend(countable_names(context, "", &core).map(|name| (name, UNLIMITED)));
    for group in call_with_timeout(client.list_api_groups()).await?.groups {
        for version in &group.versions {
            match call_with_timeout(client.list_api_group_resources(&version.group_version)).await {
                Ok(list) => found.extend(countable_names(context, &group.name, &list).map(|name| (name, UNLIMITED))),
                // The last definition of that version has just gone.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// The names in a quota of the kinds of a group that are counted.
fn countable_names(context: &Context, group: &str, list: &APIResourceList) -> impl Iterator<Item = String> {
    let dot = if group.is_empty() { "" } else { "." };
    list.resources.iter().filter_map(move |resource| {
        let is_object = resource.namespaced
            && !resource.name.contains('/')
            && ["list", "create", "delete"].iter().all(|verb| resource.verbs.iter().any(|known| known == verb));
        let is_left_out = MADE_FOR_OTHERS.contains(&(group, resource.name.as_str()))
            || context.kinds.find_placeable(group, &resource.kind).is_some_and(is_listed);
        let name = format!("{}{dot}{group}", resource.name);
        (is_object && !is_left_out && name.len() <= LONGEST).then(|| format!("count/{name}"))
    })
}

/// Objects of the kinds that can be placed, without those that Kubernetes puts into each namespace and those that a listed
/// object owns.
#[derive(Debug, Default)]
struct Listed {
    own: Vec<String>,
    foreign: Vec<String>,
}

impl Listed {
    async fn list_in_namespace(context: &Context, namespace: &str) -> Result<Self, CallError> {
        let mut listed = Self::default();
        for kind in context.kinds.iter().filter(|kind| kind.namespaced && is_listed(kind)) {
            let api: Api<DynamicObject> = kind.objects_api(&context.local, Some(namespace));
            let found = all_pages(ListParams::default(), |page| {
                let api = api.clone();
                async move { call_with_timeout(api.list_metadata(&page)).await }
            });
            let found = match found.await {
                Ok(found) => found,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error),
            };
            for object in &found {
                let key = CopyKey::new(kind, Some(namespace), &object.name_any());
                let own = object.labels().get(LABEL_PLACED_BY) == Some(&context.placed_by);
                if own && !is_incidental(&key) {
                    listed.own.push(key.to_string());
                } else if !is_incidental(&key) && !has_listed_owner(&context.kinds, object.owner_references()) {
                    listed.foreign.push(key.to_string());
                }
            }
        }
        Ok(listed)
    }
}

/// Returns true for what Kubernetes puts into each namespace, and for the quota that counts, where quotas are placed as well.
fn is_incidental(key: &CopyKey) -> bool {
    (key.is_core("ConfigMap") && key.name == "kube-root-ca.crt")
        || key.is_default_account()
        || (key.is_core("ResourceQuota") && key.name == QUOTA)
}

/// Returns true where the controller of an object is of a kind that is listed as well.
fn has_listed_owner(kinds: &Kinds, owners: &[OwnerReference]) -> bool {
    owners.iter().filter(|owner| owner.controller == Some(true)).any(|owner| {
        let group = split_api_version(&owner.api_version).0;
        kinds.find_placeable(group, &owner.kind).is_some_and(is_listed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quota_amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        pairs.iter().map(|(key, number)| ((*key).to_owned(), Quantity((*number).to_owned()))).collect()
    }

    #[test]
    fn counts_are_of_others_but_for_the_quota_itself() {
        let hard =
            quota_amounts(&[("count/secrets", "9"), ("count/resourcequotas", "9"), ("count/widgets.example.com", "9")]);
        let empty =
            quota_amounts(&[("count/secrets", "0"), ("count/resourcequotas", "1"), ("count/widgets.example.com", "0")]);
        assert_eq!(evaluate_counts(&hard, &empty), (Vec::new(), Vec::new()));
        let full = quota_amounts(&[("count/secrets", "2k"), ("count/resourcequotas", "2")]);
        let (foreign, uncounted) = evaluate_counts(&hard, &full);
        assert_eq!(foreign, ["1 resourcequotas", "2k secrets"]);
        assert_eq!(uncounted, ["widgets.example.com"]);
    }
}
