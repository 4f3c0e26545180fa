//! The request whose turn it is: whose each is, and which of theirs comes first.

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::place::referenced_key;
use super::queue::{Rank, ReconcileRequest, Taken};
use super::store::Store;
use crate::placement::tenant::{Tenant, namespace_of, tenant_of};

impl Store {
    /// Takes the request whose turn it is; among the groups of a tenant that with the oldest member.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Taken> {
        let mut queue = std::mem::take(&mut self.queue);
        let taken = queue.take_request(now, |request| (self.request_tenant(request), self.request_rank(request)));
        self.queue = queue;
        taken
    }

    /// Returns who takes a turn with a request.
    pub(super) fn request_tenant(&self, request: &ReconcileRequest) -> Tenant {
        match request {
            ReconcileRequest::Object(key) | ReconcileRequest::Status(key) => tenant_of(key),
            ReconcileRequest::Follow(namespace) if namespace.is_empty() => Tenant::ClusterScoped,
            ReconcileRequest::Follow(namespace) => Tenant::Namespace(namespace.clone()),
            ReconcileRequest::Policy(_) => Tenant::Policies,
            ReconcileRequest::Group(name) => {
                let mut members = self.members.get(name).into_iter().flatten();
                let Some(first) = members.next() else { return self.last_tenant(name) };
                let namespace = namespace_of(first);
                let is_one = members.all(|key| namespace_of(key) == namespace);
                if is_one { tenant_of(first) } else { Tenant::AcrossNamespaces }
            }
        }
    }

    /// Returns who takes a turn with a group that has become empty: whose members it had.
    fn last_tenant(&self, group: &str) -> Tenant {
        let recorded = self.groups.get(group).and_then(|group| group.status.as_ref());
        let mut members = recorded.into_iter().flat_map(|status| &status.object_refs);
        let Some(first) = members.next() else { return Tenant::AcrossNamespaces };
        let is_one = members.all(|one| one.namespace == first.namespace);
        if is_one { tenant_of(&referenced_key(first)) } else { Tenant::AcrossNamespaces }
    }

    pub(super) fn request_rank(&self, request: &ReconcileRequest) -> Rank {
        let ReconcileRequest::Group(name) = request else { return None };
        let members = self.members.get(name).into_iter().flatten();
        let created = members.filter_map(|key| self.sources.get(key)?.facts.created.map(Timestamp::as_second));
        Some(created.min().unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::placeable::Kinds;
    use crate::placement::facts::ObjectKey;
    use crate::scheduler::placing::sources::{Change, Seen};

    fn config_map_key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new("", "ConfigMap", namespace, name)
    }

    #[test]
    fn a_namespace_takes_its_turn_in_groups_and_objects_alike() {
        let (mut store, now) = (Store::new(Kinds::default(), false), Instant::now());
        let shop = Tenant::Namespace("shop".to_owned());
        assert_eq!(store.request_tenant(&ReconcileRequest::Object(config_map_key("shop", "a"))), shop);
        assert_eq!(store.request_tenant(&ReconcileRequest::Status(ObjectKey::new("", "Namespace", "", "shop"))), shop);
        assert_eq!(store.request_tenant(&ReconcileRequest::Object(config_map_key("", "a"))), Tenant::ClusterScoped);
        store.members.insert("g".to_owned(), [config_map_key("shop", "a"), config_map_key("shop", "b")].into());
        assert_eq!(store.request_tenant(&ReconcileRequest::Group("g".to_owned())), shop);
        store.members.insert("g".to_owned(), [config_map_key("shop", "a"), config_map_key("bank", "b")].into());
        assert_eq!(store.request_tenant(&ReconcileRequest::Group("g".to_owned())), Tenant::AcrossNamespaces);
        store.members.clear();
        let group = json!({"apiVersion": "policy.fleet-scheduler.io/v1alpha1", "kind": "ScheduleGroup",
            "metadata": {"name": "g"}, "spec": {"policy": {"name": "p"}}, "status": {"objectRefs": [
                {"version": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "a"}]}});
        store.apply_change(Change::Group(Seen::There(serde_json::from_value(group).unwrap())), now);
        assert_eq!(store.request_tenant(&ReconcileRequest::Group("g".to_owned())), shop, "those who were in it");
    }
}
