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
    let is_etcd = |object: &&Object| object.json["kind"] == "StatefulSet" && object.json["metadata"]["name"] == ETCD;
    let Some(wanted) = objects.iter().find(is_etcd) else { return Ok(None) };
    let set = ObjectRef::new(&Kind::from_table("apps", "StatefulSet"), Some(plan.package.namespace.as_str()), ETCD);
    Ok(refuse_volume_difference(&engine.read_object(&set).await?, &wanted.json))
}

/// Returns the refusal that names the value which differs.
fn refuse_volume_difference(live: &Value, wanted: &Value) -> Option<InstallError> {
    let claim = |set: &Value| set.pointer("/spec/volumeClaimTemplates/0/spec").cloned();
    let (live, wanted) = (claim(live)?, claim(wanted)?);
    let size = |claim: &Value| claim.pointer("/resources/requests/storage").and_then(Value::as_str).map(str::to_owned);
    let class = |claim: &Value| claim["storageClassName"].as_str().map(str::to_owned);
    let (now, asked) = (size(&live)?, size(&wanted)?);
    if quantity::parse_quantity(&now) != quantity::parse_quantity(&asked) {
        let grows = quantity::parse_quantity(&now) < quantity::parse_quantity(&asked);
        return Some(InstallError::Volume { value: "etcd.storage.size", now: Some(now), wanted: Some(asked), grows });
    }
    let (now, wanted) = (class(&live), class(&wanted));
    let value = "etcd.storage.storageClass";
    (now != wanted).then_some(InstallError::Volume { value, now, wanted, grows: false })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn another_size_or_class_is_named_with_what_there_is() {
        let set = |size: &str, class: Option<&str>| {
            let mut spec = json!({"resources": {"requests": {"storage": size}}});
            if let Some(class) = class {
                spec["storageClassName"] = class.into();
            }
            json!({"spec": {"volumeClaimTemplates": [{"spec": spec}]}})
        };
        let said = |live: &Value, wanted: &Value| refuse_volume_difference(live, wanted).map(|error| error.to_string());
        assert_eq!(said(&set("1Gi", None), &set("1024Mi", None)), None);
        assert_eq!(said(&Value::Null, &set("1Gi", None)), None);
        let larger = said(&set("1Gi", None), &set("2Gi", None)).unwrap();
        assert_eq!(larger, "`etcd.storage.size` is 1Gi since the first install, and would be 2Gi");
        let other = said(&set("1Gi", Some("a")), &set("1Gi", None)).unwrap();
        assert_eq!(other, "`etcd.storage.storageClass` is a since the first install, and would be the default");
    }
}
