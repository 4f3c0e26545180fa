//! The recorded release, rendered again: the state before a run of all that no journal is believed about.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::util::text::visible_line;
use crate::apply::engine::Engine;
use crate::apply::error::Error;
use crate::inventory::owner::NAMESPACE_CREATED_ANNOTATION;
use crate::inventory::record::{Item, Record, State, digest_manifest};
use crate::k8s::object::{ObjectRef, text_at};
use crate::k8s::request::server::Server;

/// The level of Pod Security that a namespace enforces.
const ENFORCE: &str = "/metadata/labels/pod-security.kubernetes.io~1enforce";

/// The objects of the recorded release as they were applied, or the reason that they are not known.
#[derive(Debug, Default)]
pub(crate) struct Former {
    version: String,
    objects: BTreeMap<ObjectRef, Value>,
    /// Reasons that single objects cannot be restored; `why` is the reason for all of them.
    refused: BTreeMap<ObjectRef, String>,
    why: Option<String>,
}

impl Former {
    /// Returns the former manifest of an object, which is `live` now.
    ///
    /// # Errors
    /// [`Error::NotRendered`], with the reason.
    pub(crate) fn former_manifest(&self, target: &ObjectRef, live: Option<&Value>) -> Result<&Value, Error> {
        let refuse =
            |why: String| Error::NotRendered { object: Box::new(target.clone()), version: self.version.clone(), why };
        let Some(manifest) = self.objects.get(target) else {
            let why = self.refused.get(target).or(self.why.as_ref()).cloned();
            return Err(refuse(why.unwrap_or_else(|| "it is not in the recorded release".to_owned())));
        };
        match live.and_then(|live| explain_weaker_security(live, manifest)) {
            Some(why) => Err(refuse(why)),
            None => Ok(manifest),
        }
    }
}

/// Returns the reason that a namespace does not get the Pod Security level of a record back, as a clause; none if that
/// level is not lower. With a lower one, anyone who can write the record could lift the restrictions on the namespace's
/// pods.
fn explain_weaker_security(live: &Value, manifest: &Value) -> Option<String> {
    let [was, is] = [manifest, live].map(|object| text_at(object, ENFORCE).unwrap_or("none"));
    (rank_security_level(was) < rank_security_level(is))
        .then(|| format!("a record cannot lower its Pod Security level from `{is}` to `{}`", visible_line(was)))
}

fn rank_security_level(level: &str) -> u8 {
    match level {
        "restricted" => 2,
        "baseline" => 1,
        _ => 0,
    }
}

impl Engine {
    /// Renders the recorded release again. What differs from what was applied by its digest is no former state.
    pub(crate) async fn render_former_release(&self, server: &Server, state: &State) -> Former {
        let Some(record) = &state.record else {
            let why = "there is no record of an earlier install".to_owned();
            return Former { why: Some(why), ..Former::default() };
        };
        let version = record.release.version.clone();
        let objects = match self.options.charts.render_recorded(&record.release).await {
            Ok(objects) => objects,
            Err(why) => {
                let why = format!("the recorded release cannot be rendered again: {why}");
                return Former { version, why: Some(why), ..Former::default() };
            }
        };
        let steps = match self.plan_steps(server, &objects).await {
            Ok(steps) => steps,
            Err(error) => return Former { version, why: Some(error.to_string()), ..Former::default() },
        };
        let mut former = Former { version, ..Former::default() };
        for step in steps {
            let mut manifest = step.manifest;
            if step.target.is_kind("", "Namespace") && record.namespace_created {
                manifest["metadata"]["annotations"][NAMESPACE_CREATED_ANNOTATION] = record.install_uid.clone().into();
            }
            match record.find_item(&step.target).map(|item| as_applied(record, item, manifest)) {
                Some(Some(manifest)) => former.objects.insert(step.target, manifest).map(drop),
                Some(None) => {
                    let why = "rendering the recorded release gives a different object; the chart or a secret value \
                               has changed";
                    former.refused.insert(step.target, why.to_owned()).map(drop)
                }
                None => former.refused.insert(step.target, "it is not in the record".to_owned()).map(drop),
            };
        }
        former
    }
}

/// The manifest as it was applied, by its digest: with its replicas, or without where they were left to an autoscaler.
fn as_applied(record: &Record, item: &Item, mut manifest: Value) -> Option<Value> {
    let is_it =
        |manifest: &Value| item.digest.is_empty() || digest_manifest(&record.install_uid, manifest) == item.digest;
    if is_it(&manifest) {
        return Some(manifest);
    }
    manifest.get_mut("spec")?.as_object_mut()?.remove("replicas")?;
    is_it(&manifest).then_some(manifest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::kinds::Kind;
    use crate::inventory::owner::Owner;
    use crate::inventory::record::Origin;
    use crate::inventory::release::Policy;
    use crate::inventory::release::Release;

    #[test]
    fn a_manifest_is_the_former_one_by_its_digest() {
        let object = ObjectRef::new(&Kind::from_table("apps", "Deployment"), Some("fleet"), "d");
        let manifest = json!({"spec": {"replicas": 1, "paused": false}});
        let record = Record::new(&Owner::new("control-plane", "demo", "fleet"), "u".into(), Release::default());
        let scaled = json!({"spec": {"paused": false}});
        for (applied, expected) in [
            (digest_manifest("u", &manifest), Some(&manifest)),
            (String::new(), Some(&manifest)),
            (digest_manifest("u", &scaled), Some(&scaled)),
            (digest_manifest("u", &json!({"spec": {"paused": true}})), None),
            (digest_manifest("v", &manifest), None),
        ] {
            let item = Item {
                object: object.clone(),
                uid: String::new(),
                origin: Origin::Created,
                policy: Policy::Delete,
                digest: applied,
                fields: 0,
            };
            assert_eq!(as_applied(&record, &item, manifest.clone()).as_ref(), expected);
        }
    }

    fn namespace_at_level(level: Option<&str>) -> Value {
        let labels = level.map(|level| json!({"pod-security.kubernetes.io/enforce": level}));
        json!({"metadata": {"labels": labels}})
    }

    #[test]
    fn no_record_lowers_the_pod_security_of_a_namespace() {
        for (live, former, allowed) in [
            (Some("restricted"), Some("restricted"), true),
            (Some("restricted"), Some("baseline"), false),
            (Some("restricted"), Some("privileged"), false),
            (Some("baseline"), None, false),
            (Some("baseline"), Some("restricted"), true),
            (None, Some("privileged"), true),
        ] {
            let why = explain_weaker_security(&namespace_at_level(live), &namespace_at_level(former));
            assert_eq!(why.is_none(), allowed, "{live:?} to {former:?}: {why:?}");
        }
    }
}
