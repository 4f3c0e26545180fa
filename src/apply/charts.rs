//! The charts as the engine sees them: every object that some line can render for an owner, and those of a recorded release.
//!
//! Record and journal lie in a Secret of the owner's namespace, so whoever may edit that Secret writes them. What they say is
//! believed only within these bounds.

use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;

use serde_json::Value;

use crate::inventory::release::{Policy, Release};
use crate::k8s::object::ObjectRef;

/// One object to apply.
///
/// `object` is the whole manifest with `apiVersion`, `kind` and `metadata.name`; a namespaced object without
/// `metadata.namespace` goes into the owner's namespace. Objects of a lower `stage` are applied, all of them, before
/// the first of a higher one.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// The position in the order of applying; only the order of the numbers counts.
    pub stage: u32,
    /// The manifest.
    pub object: Value,
    /// Its deletion policy.
    pub policy: Policy,
}

impl Planned {
    /// An object that is deleted with the installation.
    pub const fn new(stage: u32, object: Value) -> Self {
        Self { stage, object, policy: Policy::Delete }
    }

    /// An object that an uninstall keeps unless data is to be deleted too.
    pub const fn new_retained(stage: u32, object: Value) -> Self {
        Self { stage, object, policy: Policy::Keep }
    }
}

/// The objects that the charts of all lines can render for one owner, whatever the values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Renderable(BTreeSet<ObjectRef>);

impl FromIterator<ObjectRef> for Renderable {
    fn from_iter<I: IntoIterator<Item = ObjectRef>>(objects: I) -> Self {
        Self(objects.into_iter().map(|object| without_digest(&object)).collect())
    }
}

/// The object as a chart names it: the name of a Job ends with a digest of its template, which follows from values.
fn without_digest(object: &ObjectRef) -> ObjectRef {
    match object.name.rsplit_once('-') {
        Some((name, digest))
            if object.is_kind("batch", "Job")
                && digest.len() == 16
                && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            ObjectRef { name: name.to_owned(), ..object.clone() }
        }
        _ => object.clone(),
    }
}

impl Renderable {
    /// Returns whether a chart of some line renders an object of this kind, namespace and name.
    pub fn contains(&self, object: &ObjectRef) -> bool {
        self.0.contains(&without_digest(object))
    }

    /// The objects, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &ObjectRef> {
        self.0.iter()
    }

    /// Returns the reason that no chart renders an object, as a clause; none for one that some chart renders.
    pub(crate) fn explain_not_rendered(&self, object: &ObjectRef) -> Option<String> {
        if self.contains(object) {
            return None;
        }
        let mut same_kind = self.0.iter().filter(|known| known.is_kind(&object.group, &object.kind)).peekable();
        if same_kind.peek().is_none() {
            return Some("no chart of any version renders this kind of object".to_owned());
        }
        let elsewhere = same_kind.any(|known| known.name == object.name);
        Some(if elsewhere {
            "no chart of any version renders it in that namespace".to_owned()
        } else {
            "no chart of any version renders an object of this kind with that name".to_owned()
        })
    }
}

/// The answer to [`Charts::render_recorded`].
pub type Rendering<'a> = Pin<Box<dyn Future<Output = Result<Vec<Planned>, String>> + Send + 'a>>;

/// The compiled charts, for the owner of an engine.
pub trait Charts: fmt::Debug + Send + Sync {
    /// Every object that the chart of some line renders, with all that values can switch on.
    fn renderable_objects(&self) -> &Renderable;

    /// The objects of a recorded release, rendered again from its version and its values; those of secret values are read
    /// from the cluster.
    ///
    /// # Errors
    /// A clause that says why it cannot be rendered, such as that its values are not recorded.
    fn render_recorded<'a>(&'a self, release: &'a Release) -> Rendering<'a>;
}

/// The charts of an engine that was given none: it undoes nothing.
#[derive(Debug, Default)]
pub(crate) struct NoCharts(Renderable);

impl Charts for NoCharts {
    fn renderable_objects(&self) -> &Renderable {
        &self.0
    }

    fn render_recorded<'a>(&'a self, _: &'a Release) -> Rendering<'a> {
        Box::pin(async { Err("no charts are available".to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::kinds::Kind;

    fn reference_to(group: &str, kind: &str, namespace: &str, name: &str) -> ObjectRef {
        ObjectRef::new(&Kind::from_table(group, kind), Some(namespace), name)
    }

    #[test]
    fn an_object_is_renderable_by_kind_namespace_and_name() {
        let rbac = "rbac.authorization.k8s.io";
        let renderable: Renderable = [
            reference_to("", "ConfigMap", "fleet", "config"),
            reference_to(rbac, "Role", "kube-system", "fleet-agent"),
            reference_to(rbac, "ClusterRole", "", "fleet-agent"),
            reference_to("batch", "Job", "fleet", "fleet-keys-0123456789abcdef"),
        ]
        .into_iter()
        .collect();
        for (known, refused) in [
            (reference_to("", "ConfigMap", "fleet", "config"), None),
            (reference_to(rbac, "Role", "kube-system", "fleet-agent"), None),
            (reference_to(rbac, "ClusterRole", "", "fleet-agent"), None),
            (reference_to("batch", "Job", "fleet", "fleet-keys-fedcba9876543210"), None),
            (reference_to("batch", "Job", "fleet", "other-fedcba9876543210"), Some("with that name")),
            (reference_to("batch", "Job", "fleet", "fleet-keys-x"), Some("with that name")),
            (reference_to("", "ConfigMap", "fleet", "config-0123456789abcdef"), Some("with that name")),
            (reference_to("", "ConfigMap", "kube-system", "config"), Some("in that namespace")),
            (reference_to("", "ConfigMap", "fleet", "other"), Some("with that name")),
            (reference_to(rbac, "ClusterRoleBinding", "", "fleet-agent"), Some("this kind")),
            (reference_to(rbac, "Role", "fleet", "fleet-agent"), Some("in that namespace")),
        ] {
            let why = renderable.explain_not_rendered(&known);
            assert_eq!(why.is_none(), refused.is_none(), "{known}: {why:?}");
            assert!(refused.is_none_or(|part| why.as_ref().is_some_and(|why| why.contains(part))), "{known}: {why:?}");
        }
    }
}
