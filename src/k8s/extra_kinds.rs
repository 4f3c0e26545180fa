//! Discovery of the kinds that an operator added to those that can be placed, as an API server serves them.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;

use super::backoff::Backoff;
use super::connect::daemon_client::{CallError, call_with_timeout};
use crate::api::extra_kind::ExtraKind;
use crate::api::placeable::{Kinds, Placeable};

/// Verbs that a kind has to support before copies of its objects can be kept.
const VERBS: [&str; 6] = ["get", "list", "watch", "create", "patch", "delete"];

/// Kinds as one API server serves them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Served {
    /// Those that can be placed, in the order in which they were asked for.
    pub kinds: Vec<&'static Placeable>,
    /// Those that cannot, each with the reason.
    pub missing: BTreeMap<ExtraKind, String>,
}

/// Time after which it is asked again whether the API server serves a kind that it did not.
pub const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// The kinds that can be placed: those of the table, and of `wanted` those that the API server serves; the others are logged.
/// Asks until it is answered.
pub async fn discover_kinds(client: &Client, wanted: &[ExtraKind]) -> Kinds {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    loop {
        match fetch_served_kinds(client, wanted).await {
            Ok(served) => {
                for (kind, why) in &served.missing {
                    tracing::warn!(%kind, why, "a kind cannot be placed");
                }
                return Kinds::with_added(served.kinds);
            }
            Err(error) => tracing::warn!(%error, "cannot read the served kinds; will retry"),
        }
        tokio::time::sleep(backoff.next_wait()).await;
    }
}

/// Waits until the API server serves kinds of `wanted` that are not in `known`, and returns them; waits for ever where
/// there are none.
pub async fn wait_for_new_kinds(client: &Client, wanted: &[ExtraKind], known: &Kinds) -> Vec<&'static Placeable> {
    let mut missing = wanted.to_vec();
    missing.retain(|kind| known.find_placeable(&kind.group, &kind.kind).is_none());
    if missing.is_empty() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        if let Ok(served) = fetch_served_kinds(client, &missing).await
            && let Some(kind) = served.kinds.first()
        {
            tracing::info!(kind = kind.kind, "another kind can be placed");
            return served.kinds;
        }
    }
}

/// Asks for each kind, of several versions of one for the first that is served: two watches of the same objects would wait for
/// each other. What is found lives as long as the program, and is as much as there are flags each time that it is asked for.
///
/// # Errors
/// A call that failed otherwise than by saying that there is no such group.
pub async fn fetch_served_kinds(client: &Client, wanted: &[ExtraKind]) -> Result<Served, CallError> {
    let mut lists: BTreeMap<String, Vec<APIResource>> = BTreeMap::new();
    let mut served = Served::default();
    for kind in wanted {
        if served.kinds.iter().any(|one| one.group == kind.group && one.kind == kind.kind) {
            continue;
        }
        let version = kind.api_version();
        if !lists.contains_key(&version) {
            let list = if kind.group.is_empty() {
                call_with_timeout(client.list_core_api_resources(&version)).await
            } else {
                call_with_timeout(client.list_api_group_resources(&version)).await
            };
            let found = match list {
                Ok(list) => list.resources,
                Err(error) if error.is_not_found() => Vec::new(),
                Err(error) => return Err(error),
            };
            lists.insert(version.clone(), found);
        }
        let resource = lists[&version].iter().find(|one| one.kind == kind.kind && !one.name.contains('/'));
        match resource.map(|resource| to_placeable(kind, resource)) {
            Some(Ok(found)) => served.kinds.push(found),
            Some(Err(why)) => drop(served.missing.insert(kind.clone(), why)),
            None => drop(served.missing.insert(kind.clone(), "this API server does not serve it".to_owned())),
        }
    }
    Ok(served)
}

fn to_placeable(kind: &ExtraKind, resource: &APIResource) -> Result<&'static Placeable, String> {
    if let Some(verb) = VERBS.iter().find(|verb| !resource.verbs.iter().any(|one| one == *verb)) {
        return Err(format!("this kind does not support the verb {verb} on this API server"));
    }
    let [group, version, kind_name, plural] =
        [&kind.group, &kind.version, &kind.kind, &resource.name].map(|text| &*text.clone().leak());
    Ok(Box::leak(Box::new(Placeable {
        group,
        version,
        kind: kind_name,
        plural,
        namespaced: resource.namespaced,
        wave: kind.apply_wave(),
    })))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::k8s::test_api;

    #[tokio::test]
    async fn kinds_are_as_the_api_server_serves_them() {
        let all = ["get", "list", "watch", "create", "patch", "delete"];
        let client = test_api::api(move |uri, _| match uri.path() {
            "/apis/example.com/v1" | "/apis/example.com/v2" => {
                json!({ "kind": "APIResourceList", "groupVersion": "example.com/v1", "resources": [
                    { "name": "widgets/status", "singularName": "", "namespaced": true, "kind": "Widget", "verbs": ["get"] },
                    { "name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget", "verbs": all },
                    { "name": "views", "singularName": "view", "namespaced": false, "kind": "View", "verbs": ["get", "list"] },
                ]})
            }
            "/api/v1" => json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [
                { "name": "limitranges", "singularName": "", "namespaced": true, "kind": "LimitRange", "verbs": all },
            ]}),
            _ => test_api::failure(404),
        });
        let wanted =
            ["example.com/v1/Widget", "example.com/v1/View", "v1/LimitRange", "other.io/v1/X", "example.com/v2/Widget"];
        let wanted = wanted.map(|text| text.parse().unwrap());
        let served = fetch_served_kinds(&client, &wanted).await.unwrap();
        let found: Vec<_> =
            served.kinds.iter().map(|kind| (kind.api_version(), kind.plural, kind.namespaced)).collect();
        let expected = [("example.com/v1".to_owned(), "widgets", true), ("v1".to_owned(), "limitranges", true)];
        assert_eq!(found, expected);
        assert!(served.missing[&wanted[1]].contains("verb watch"), "{:?}", served.missing);
        assert!(served.missing[&wanted[3]].contains("does not serve"), "{:?}", served.missing);
    }
}
