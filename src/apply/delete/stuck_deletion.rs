//! Reasons that an object whose deletion was asked for is still there: its finalizers, the pods that mount it, the objects in a
//! namespace, and kinds without an answer, on which garbage collection and the deletion of namespaces wait.

use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use serde_json::Value;

use crate::api::first_of::first_of;
use crate::api::kinds::Kind;
use crate::api::util::text::visible_line;
use crate::diagnose::kstatus::format_deletion_blockers;
use crate::inventory::Owner;
use crate::k8s::discovery;
use crate::k8s::object::{ObjectRef, is_terminating, items_at, text_at};
use crate::k8s::request::api_error::ApiError;
use crate::k8s::request::server::{Selection, Server};

/// Time after which all kinds are asked again.
const ASK_AGAIN: Duration = Duration::from_secs(30);
/// Number of kinds and of objects that are named at most.
const NAMED: usize = 5;

/// What a survey of all kinds has found. It takes a request for each kind, so it is made only for a deletion that takes long.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Time of the last survey.
    taken: Option<Instant>,
    /// Kinds that were asked for.
    kinds: Vec<Kind>,
    /// Kinds, or versions of groups, that gave no answer, each with the reason where it is known.
    unanswered: Vec<String>,
    /// Objects of the owner's namespace that are being deleted and have finalizers, each with these; `None` until the namespace
    /// was searched.
    finalized: Option<Vec<String>>,
}

/// Explains what keeps objects of an owner from being deleted.
pub(super) struct HoldFinder<'f> {
    /// Owner of the objects.
    pub(super) owner: &'f Owner,
    /// Requests at a time.
    pub(super) parallel: usize,
}

impl HoldFinder<'_> {
    /// Returns what keeps an object from being deleted, as a clause.
    pub(super) async fn explain_hold(
        &self,
        server: &Server,
        object: &ObjectRef,
        live: &Value,
        survey: &mut Survey,
    ) -> String {
        let because = format_deletion_blockers(live);
        if object.is_kind("", "PersistentVolumeClaim") {
            return mounting_pods(server, object).await.unwrap_or(because);
        }
        let is_own_namespace = object.is_kind("", "Namespace") && object.name == self.owner.namespace;
        let is_collected = awaits_collection(live);
        if !is_own_namespace && !is_collected {
            return because;
        }
        if survey.taken.is_none_or(|taken| taken.elapsed() >= ASK_AGAIN) {
            *survey = self.survey_kinds(server).await;
        }
        if is_collected {
            return survey.describe_collection();
        }
        if survey.finalized.is_none() {
            self.search_namespace(server, survey).await;
        }
        survey.describe_namespace(because)
    }

    /// Asks for every kind, in the whole cluster: a kind whose objects cannot be converted fails only where there are some.
    async fn survey_kinds(&self, server: &Server) -> Survey {
        let taken = Some(Instant::now());
        let Ok((kinds, silent)) = discovery::list_kinds(server, self.parallel).await else {
            return Survey { taken, ..Survey::default() };
        };
        let owned = self.owner.owner_selector();
        let everywhere = Selection { labels: Some(&owned), metadata_only: true, ..Selection::default() };
        let mut survey = Survey { taken, unanswered: silent, ..Survey::default() };
        for (kind, answer) in self.list_each(server, &kinds, &everywhere).await {
            if let Err(error) = answer {
                survey.note_unanswered(kind, &error);
            }
        }
        survey.kinds = kinds;
        survey
    }

    /// Asks for every kind in the owner's namespace: users may be allowed to list there and nowhere else.
    async fn search_namespace(&self, server: &Server, survey: &mut Survey) {
        let namespaced: Vec<Kind> = survey.kinds.iter().filter(|kind| kind.namespaced).cloned().collect();
        let here = Selection { namespace: Some(&self.owner.namespace), metadata_only: true, ..Selection::default() };
        let mut finalized = Vec::new();
        for (kind, answer) in self.list_each(server, &namespaced, &here).await {
            match answer {
                Ok(objects) => finalized.extend(objects.iter().filter_map(describe_finalized)),
                Err(error) => survey.note_unanswered(kind, &error),
            }
        }
        survey.finalized = Some(finalized);
    }

    /// Lists the objects of each kind.
    async fn list_each<'k>(
        &self,
        server: &Server,
        kinds: &'k [Kind],
        selection: &Selection<'_>,
    ) -> Vec<(&'k Kind, Result<Vec<Value>, ApiError>)> {
        stream::iter(kinds)
            .map(|kind| async move { (kind, server.list_objects(kind, selection).await) })
            .buffered(self.parallel)
            .collect()
            .await
    }
}

impl Survey {
    /// Notes a kind that gave no answer, once. What may not be listed, or is not there any more, is none of these.
    fn note_unanswered(&mut self, kind: &Kind, error: &ApiError) {
        if error.is_forbidden() || error.is_not_found() || error.code == 405 {
            return;
        }
        let named = format!("{} (", kind.group_kind());
        if self.unanswered.iter().all(|known| !known.starts_with(&named)) {
            self.unanswered.push(format!("{named}{})", visible_line(&error.message)));
        }
    }

    /// What keeps an object that has lost its owner.
    fn describe_collection(&self) -> String {
        let why = "its owner is deleted, but the garbage collector of the cluster has not deleted this object yet";
        if self.unanswered.is_empty() {
            return why.to_owned();
        }
        let kinds = first_of(&self.unanswered, NAMED, ", ");
        format!(
            "{why}; the garbage collector can stop while a kind does not answer; these kinds do not answer: {kinds}"
        )
    }

    /// What keeps the namespace, beside what the namespace itself says.
    fn describe_namespace(&self, because: String) -> String {
        let mut clauses = vec![because];
        if let Some(finalized) = self.finalized.as_ref().filter(|finalized| !finalized.is_empty()) {
            clauses.push(format!("finalizers hold {}", first_of(finalized, NAMED, ", ")));
        }
        if !self.unanswered.is_empty() {
            clauses.push(format!("these kinds do not answer: {}", first_of(&self.unanswered, NAMED, ", ")));
        }
        clauses.join("; ")
    }
}

/// Returns whether an object has an owner and nobody has deleted the object itself: garbage collection has to.
fn awaits_collection(live: &Value) -> bool {
    !is_terminating(live) && !items_at(live, "/metadata/ownerReferences").is_empty()
}

/// Returns the kind, the name and the finalizers of an object that is being deleted and has some.
fn describe_finalized(live: &Value) -> Option<String> {
    let finalizers: Vec<&str> = items_at(live, "/metadata/finalizers").iter().filter_map(Value::as_str).collect();
    if !is_terminating(live) || finalizers.is_empty() {
        return None;
    }
    let object = ObjectRef::of(live)?;
    Some(format!("{} {} ({})", object.kind, object.name, finalizers.join(", ")))
}

/// Returns the pods that mount a claim, as a clause. Without the right to list pods there is none.
async fn mounting_pods(server: &Server, claim: &ObjectRef) -> Option<String> {
    let selection = Selection { namespace: claim.namespace.as_deref(), ..Selection::default() };
    let pods = server.list_objects(&Kind::from_table("", "Pod"), &selection).await.unwrap_or_default();
    match &find_mounting_pods(&pods, &claim.name)[..] {
        [] => None,
        [one] => Some(format!("pod {one} mounts it: delete that pod first")),
        several => Some(format!("pods {} mount it: delete these pods first", several.join(", "))),
    }
}

/// Names of the pods that mount a claim, and have not ended.
fn find_mounting_pods<'p>(pods: &'p [Value], claim: &str) -> Vec<&'p str> {
    pods.iter().filter(|pod| mounts_claim(pod, claim)).filter_map(|pod| text_at(pod, "/metadata/name")).collect()
}

fn mounts_claim(pod: &Value, claim: &str) -> bool {
    let has_ended = matches!(text_at(pod, "/status/phase"), Some("Succeeded" | "Failed"));
    !has_ended
        && items_at(pod, "/spec/volumes").iter().any(|v| text_at(v, "/persistentVolumeClaim/claimName") == Some(claim))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::k8s::run_event::Events;
    use crate::k8s::test_api;

    fn listed_resource(plural: &str, kind: &str) -> Value {
        json!({"name": plural, "kind": kind, "namespaced": true, "verbs": ["list", "get", "delete"]})
    }

    /// A cluster in which widgets cannot be converted, and a gadget with a finalizer is in the namespace. `everywhere` answers
    /// the list of gadgets in the whole cluster.
    fn server(everywhere: Value) -> Server {
        let client = test_api::api(move |uri, _| match uri.path() {
            "/api/v1" => {
                json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [listed_resource("pods", "Pod")]})
            }
            "/apis" => {
                json!({"kind": "APIGroupList", "groups": [{"name": "bug.example", "preferredVersion": {"groupVersion": "bug.example/v2", "version": "v2"},
                "versions": [{"groupVersion": "bug.example/v2", "version": "v2"}]}]})
            }
            "/apis/bug.example/v2" => {
                json!({"kind": "APIResourceList", "groupVersion": "bug.example/v2", "resources": [listed_resource("widgets", "Widget"), listed_resource("gadgets", "Gadget")]})
            }
            "/apis/bug.example/v2/widgets" => {
                let mut failure = test_api::failure(500);
                failure["message"] = "conversion webhook for bug.example/v1, Kind=Widget failed".into();
                failure
            }
            "/apis/bug.example/v2/gadgets" => everywhere.clone(),
            "/apis/bug.example/v2/namespaces/fleet/gadgets" => json!({"metadata": {}, "items": [
                {"apiVersion": "bug.example/v2", "kind": "Gadget", "metadata": {"name": "g", "namespace": "fleet",
                    "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["bug.example/held"]}}]}),
            _ => json!({"metadata": {}, "items": []}),
        });
        Server::new(client, Events::default())
    }

    async fn hold_of(object: &ObjectRef, live: &Value, survey: &mut Survey) -> String {
        hold_on(&server(json!({"metadata": {}, "items": []})), object, live, survey).await
    }

    async fn hold_on(server: &Server, object: &ObjectRef, live: &Value, survey: &mut Survey) -> String {
        let owner = Owner::new("control-plane", "demo", "fleet");
        HoldFinder { owner: &owner, parallel: 4 }.explain_hold(server, object, live, survey).await
    }

    #[tokio::test]
    async fn garbage_collection_and_the_kind_without_an_answer_are_named() {
        let pod = ObjectRef::new(&Kind::from_table("", "Pod"), Some("fleet"), "etcd-0");
        let live =
            json!({"metadata": {"name": "etcd-0", "ownerReferences": [{"kind": "StatefulSet", "name": "etcd"}]}});
        let mut survey = Survey::default();
        let why = hold_of(&pod, &live, &mut survey).await;
        assert!(why.contains("garbage collector") && why.contains("Widget.bug.example"), "{why}");
        assert!(why.contains("conversion webhook"), "{why}");
        assert_eq!(survey.finalized, None, "nobody waits for the namespace");
        // A namespace that is waited for as well needs what was left out.
        let namespace = ObjectRef::new(&Kind::from_table("", "Namespace"), None, "fleet");
        let deleted = json!({"metadata": {"name": "fleet", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let why = hold_of(&namespace, &deleted, &mut survey).await;
        assert!(why.contains("Gadget g (bug.example/held)"), "{why}");
        assert_eq!(why.matches("Widget.bug.example").count(), 1, "{why}");
        // What has a finalizer of its own needs no survey.
        let held = json!({"metadata": {"name": "etcd-0", "deletionTimestamp": "t", "finalizers": ["a.example/b"]}});
        let mut survey = Survey::default();
        let why = hold_of(&pod, &held, &mut survey).await;
        assert!(why.contains("a.example/b") && survey.taken.is_none(), "{why}");
    }

    #[tokio::test]
    async fn the_objects_that_hold_a_namespace_are_named() {
        let namespace = ObjectRef::new(&Kind::from_table("", "Namespace"), None, "fleet");
        let live = json!({"metadata": {"name": "fleet", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        let why = hold_of(&namespace, &live, &mut Survey::default()).await;
        assert!(why.contains("Gadget g (bug.example/held)") && why.contains("Widget.bug.example"), "{why}");
        // Some users may list only in the namespace.
        let why = hold_on(&server(test_api::failure(403)), &namespace, &live, &mut Survey::default()).await;
        assert!(why.contains("Gadget g (bug.example/held)"), "{why}");
    }

    fn mounting_pod(name: &str, claim: &str, phase: &str) -> Value {
        json!({ "metadata": { "name": name }, "status": { "phase": phase },
            "spec": { "volumes": [{ "name": "x", "emptyDir": {} },
                { "name": "data", "persistentVolumeClaim": { "claimName": claim } }] } })
    }

    #[test]
    fn pods_that_mount_a_claim_and_have_not_ended_hold_it() {
        let pods = [
            mounting_pod("a", "data-etcd-0", "Running"),
            mounting_pod("b", "data-etcd-0", "Pending"),
            mounting_pod("c", "data-etcd-1", "Running"),
            mounting_pod("d", "data-etcd-0", "Succeeded"),
        ];
        assert_eq!(find_mounting_pods(&pods, "data-etcd-0"), ["a", "b"]);
        assert!(find_mounting_pods(&pods, "data-etcd-2").is_empty());
    }
}
