//! Owners of replicas that somebody has scaled: an autoscaler, ourselves again, or another manager.
//!
//! The entry of a manager that scaled once stays when the manager is gone, so it says nothing of who scales now; that an
//! autoscaler is there does.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::kinds::Kind;
use crate::k8s::managed_fields;
use crate::k8s::managed_fields::AUTOSCALERS;
use crate::k8s::object::{ObjectRef, text_at};
use crate::k8s::request::server::{Selection, Server};

/// Present owner of the replicas of an object, which somebody other than a person with kubectl has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Scaler {
    /// The autoscaler of this name.
    Autoscaler(String),
    /// The manager of this name, which counts as an autoscaler because autoscalers cannot be listed.
    Unread(String),
    /// Ourselves again: the autoscaler that took them is gone.
    Gone,
    /// A manager that is no autoscaler of Kubernetes: a person with another client, or an operator.
    Other,
}

impl Scaler {
    /// Returns whether the replicas are left to it.
    pub(crate) const fn is_replica_owner(&self) -> bool {
        matches!(self, Self::Autoscaler(_) | Self::Unread(_))
    }

    /// Returns the keeper of the replicas, in words for messages; none where they are not left to anybody.
    pub(crate) fn describe_replica_owner(&self) -> Option<String> {
        match self {
            Self::Autoscaler(name) => Some(format!("the autoscaler `{name}`")),
            Self::Unread(manager) => Some(format!("`{manager}` (autoscalers cannot be listed)")),
            Self::Gone | Self::Other => None,
        }
    }

    fn from_autoscalers(target: &ObjectRef, manager: &str, autoscalers: Option<&[Value]>) -> Self {
        let Some(autoscalers) = autoscalers else { return Self::Unread(manager.to_owned()) };
        match autoscalers.iter().find(|autoscaler| is_autoscaler_of(autoscaler, target)) {
            Some(autoscaler) => Self::Autoscaler(text_at(autoscaler, "/metadata/name").unwrap_or_default().to_owned()),
            None if manager == AUTOSCALERS => Self::Gone,
            None => Self::Other,
        }
    }
}

/// Returns whether an autoscaler is one of this object, in whichever version it names it.
fn is_autoscaler_of(autoscaler: &Value, target: &ObjectRef) -> bool {
    let [api_version, kind, name] = ["apiVersion", "kind", "name"]
        .map(|field| text_at(autoscaler, &format!("/spec/scaleTargetRef/{field}")).unwrap_or_default());
    let (group, _) = api_version.split_once('/').unwrap_or_default();
    target.is_kind(group, kind) && target.name == name
}

/// Finds the owners of the replicas of those of these live objects (or their metadata) that somebody has scaled.
///
/// Where nobody has, nothing is read; else the autoscalers of each namespace concerned, in one list.
pub(crate) async fn find_scalers<'a>(
    server: &Server,
    live: impl IntoIterator<Item = (&'a ObjectRef, &'a Value)>,
) -> BTreeMap<ObjectRef, Scaler> {
    let taken = live.into_iter().filter_map(|(target, live)| Some((target, managed_fields::scaled_by(live)?)));
    let mut places: BTreeMap<Option<&str>, Vec<(&ObjectRef, &str)>> = BTreeMap::new();
    for (target, manager) in taken {
        places.entry(target.namespace.as_deref()).or_default().push((target, manager));
    }
    let kind = Kind::from_table("autoscaling", "HorizontalPodAutoscaler");
    let mut found = BTreeMap::new();
    for (namespace, taken) in places {
        let selection = Selection { namespace, ..Selection::default() };
        // Whoever may not read them goes on as if the manager were one.
        let autoscalers = server.list_objects(&kind, &selection).await.ok();
        found.extend(taken.into_iter().map(|(target, manager)| {
            (target.clone(), Scaler::from_autoscalers(target, manager, autoscalers.as_deref()))
        }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn autoscaler(api_version: &str, kind: &str, name: &str) -> Value {
        json!({"metadata": {"name": "a"},
            "spec": {"scaleTargetRef": {"apiVersion": api_version, "kind": kind, "name": name}}})
    }

    #[test]
    fn replicas_are_an_autoscalers_only_where_one_is_for_that_object() {
        let target = ObjectRef::new(&Kind::from_table("apps", "Deployment"), Some("fleet"), "d");
        let its = [autoscaler("apps/v1", "Deployment", "d")];
        assert_eq!(Scaler::from_autoscalers(&target, AUTOSCALERS, Some(&its)), Scaler::Autoscaler("a".to_owned()));
        assert_eq!(
            Scaler::from_autoscalers(&target, "oc", Some(&its)),
            Scaler::Autoscaler("a".to_owned()),
            "whoever scaled last"
        );
        let others = [
            autoscaler("apps/v1", "Deployment", "e"),
            autoscaler("apps/v1", "StatefulSet", "d"),
            autoscaler("example.com/v1", "Deployment", "d"),
        ];
        for none in [&others[..], &[]] {
            assert_eq!(Scaler::from_autoscalers(&target, AUTOSCALERS, Some(none)), Scaler::Gone);
            assert_eq!(Scaler::from_autoscalers(&target, "oc", Some(none)), Scaler::Other);
        }
    }

    #[test]
    fn where_autoscalers_cannot_be_listed_replicas_are_left_to_who_has_them() {
        let target = ObjectRef::new(&Kind::from_table("apps", "Deployment"), Some("fleet"), "d");
        let unread = Scaler::from_autoscalers(&target, "oc", None);
        assert!(
            unread.is_replica_owner() && unread.describe_replica_owner().is_some_and(|keeper| keeper.contains("`oc`")),
            "{unread:?}"
        );
        assert!(!Scaler::Gone.is_replica_owner() && !Scaler::Other.is_replica_owner());
    }
}
