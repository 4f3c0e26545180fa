//! The volumes of etcd. A StatefulSet keeps the size and the class that its first install gave them.

use serde_json::Value;

use crate::api::kinds::Kind;
use crate::api::quantity;
use crate::apply;
use crate::apply::Engine;
use crate::chart::Object;
use crate::check::hosting::HostingFacts;
use crate::control_plane::error::InstallError;
use crate::control_plane::plan::Plan;
use crate::k8s::ObjectRef;

/// Name of etcd's StatefulSet.
const ETCD: &str = "etcd";

/// Where a StatefulSet has the specification of its first claim.
const CLAIM: &str = "/spec/volumeClaimTemplates/0/spec";

/// Where a claim has the size that it asks for.
const SIZE: &str = "/resources/requests/storage";

/// Refuses a size or StorageClass of the volumes other than that of the installed StatefulSet.
pub(in crate::control_plane) async fn refuse_volume_change(
    plan: &Plan,
    engine: &Engine,
    facts: &HostingFacts,
    objects: &[Object],
) -> Result<Option<InstallError>, apply::Error> {
    if !facts.namespace.control_planes.contains(&plan.name.to_string()) {
        return Ok(None);
    }
    let mut sets = objects.iter().filter(|object| object.json["kind"] == "StatefulSet");
    let Some(wanted) = sets.find(|set| set.json["metadata"]["name"] == ETCD) else { return Ok(None) };
    let set = ObjectRef::new(&Kind::from_table("apps", "StatefulSet"), Some(plan.package.namespace.as_str()), ETCD);
    Ok(refuse_volume_difference(&engine.read_object(&set).await?, &wanted.json))
}

/// Returns the refusal that names the value which differs.
fn refuse_volume_difference(live: &Value, wanted: &Value) -> Option<InstallError> {
    let (live, wanted) = (live.pointer(CLAIM)?, wanted.pointer(CLAIM)?);
    let (now, asked) = (live.pointer(SIZE)?.as_str()?, wanted.pointer(SIZE)?.as_str()?);
    if quantity::parse_quantity(now) != quantity::parse_quantity(asked) {
        let grows = quantity::parse_quantity(now) < quantity::parse_quantity(asked);
        let [now, wanted] = [now, asked].map(|size| Some(size.to_owned()));
        return Some(InstallError::Volume { value: "etcd.storage.size", now, wanted, grows });
    }
    let [now, wanted] = [live, wanted].map(|claim| claim["storageClassName"].as_str().map(str::to_owned));
    let value = "etcd.storage.storageClass";
    (now != wanted).then_some(InstallError::Volume { value, now, wanted, grows: false })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn build_claiming_set(size: &str, class: Option<&str>) -> Value {
        let mut spec = json!({"resources": {"requests": {"storage": size}}});
        if let Some(class) = class {
            spec["storageClassName"] = class.into();
        }
        json!({"spec": {"volumeClaimTemplates": [{"spec": spec}]}})
    }

    fn explain_difference(live: &Value, wanted: &Value) -> Option<String> {
        refuse_volume_difference(live, wanted).map(|error| error.to_string())
    }

    #[test]
    fn another_size_or_class_is_named_with_what_there_is() {
        assert_eq!(explain_difference(&build_claiming_set("1Gi", None), &build_claiming_set("1024Mi", None)), None);
        assert_eq!(explain_difference(&Value::Null, &build_claiming_set("1Gi", None)), None);
        let larger = explain_difference(&build_claiming_set("1Gi", None), &build_claiming_set("2Gi", None)).unwrap();
        assert_eq!(larger, "`etcd.storage.size` cannot change after the first install: it is 1Gi, and would be 2Gi");
        let other =
            explain_difference(&build_claiming_set("1Gi", Some("a")), &build_claiming_set("1Gi", None)).unwrap();
        let expected =
            "`etcd.storage.storageClass` cannot change after the first install: it is a, and would be the default";
        assert_eq!(other, expected);
    }
}
