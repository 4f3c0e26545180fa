//! The claim templates of a StatefulSet that others made. No API server lets them be changed, so what those wrote into
//! their metadata stays, such as the annotation by which Argo CD leaves the claims alone.

use serde_json::Value;

use super::error::Error;
use super::step::Step;
use crate::k8s::object::{is_terminating, items_at, text_at};
use crate::k8s::request::server::Server;

const TEMPLATES: &str = "/spec/volumeClaimTemplates";

/// Takes labels and annotations of the claim templates from the StatefulSet that exists, which is read for it. The step
/// then says which ones of the manifest are lost by it.
///
/// # Errors
/// A read that the server refuses.
pub(super) async fn keep_metadata(server: &Server, step: &mut Step) -> Result<(), Error> {
    let is_there = step.live.as_ref().is_some_and(|live| !is_terminating(live));
    if !is_there || step.kind.kind != "StatefulSet" || items_at(&step.manifest, TEMPLATES).is_empty() {
        return Ok(());
    }
    let live = server.get_object(&step.kind, step.target.namespace.as_deref(), &step.target.name).await;
    let live = live.map_err(|error| Error::for_object("read", &step.target, error))?;
    if let Some(live) = live {
        step.unset = take_metadata(&mut step.manifest, &live);
    }
    Ok(())
}

/// Gives each claim template the labels and annotations of its namesake. Returns those that it had and that have another
/// value there or none, a noun phrase each.
fn take_metadata(manifest: &mut Value, live: &Value) -> Vec<String> {
    let mut unset = Vec::new();
    let templates = manifest.pointer_mut(TEMPLATES).and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        let name = text_at(template, "/metadata/name").map(str::to_owned);
        let name = name.as_deref();
        let Some(namesake) = items_at(live, TEMPLATES).iter().find(|live| text_at(live, "/metadata/name") == name)
        else {
            continue;
        };
        let Some(metadata) = template["metadata"].as_object_mut() else { continue };
        for (key, one) in [("annotations", "annotation"), ("labels", "label")] {
            let wanted = metadata.get(key).and_then(Value::as_object).into_iter().flatten();
            let lost = wanted.filter(|(label, value)| namesake["metadata"][key].get(label.as_str()) != Some(value));
            unset.extend(
                lost.map(|(label, _)| format!("{one} `{label}` of claim template `{}`", name.unwrap_or_default())),
            );
            match namesake["metadata"].get(key) {
                Some(theirs) => metadata.insert(key.to_owned(), theirs.clone()),
                None => metadata.remove(key),
            };
        }
    }
    unset
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A StatefulSet with a template of this metadata beside another one.
    fn set_with_templates(metadata: Value, spec: &str) -> Value {
        json!({"spec": {"volumeClaimTemplates": [
            {"metadata": {"name": "other", "labels": {"a": spec}}},
            {"metadata": metadata, "spec": {"size": spec}},
        ]}})
    }

    #[test]
    fn a_template_keeps_its_spec_and_takes_the_metadata_of_its_namesake() {
        let mut manifest = set_with_templates(json!({"name": "data", "labels": {"a": "ours", "b": "ours"}}), "ours");
        let mut live = set_with_templates(
            json!({"name": "data", "labels": {"a": "theirs"}, "annotations": {"c": "theirs"}}),
            "theirs",
        );
        live["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] = "strange".into();
        let unset = take_metadata(&mut manifest, &live);
        assert_eq!(unset, ["label `a` of claim template `data`", "label `b` of claim template `data`"]);
        let metadata = json!({"name": "data", "labels": {"a": "theirs"}, "annotations": {"c": "theirs"}});
        assert_eq!(manifest, set_with_templates(metadata, "ours"), "what has no namesake stays");
        live["spec"]["volumeClaimTemplates"][1]["metadata"] = json!({"name": "data"});
        assert_eq!(
            take_metadata(&mut manifest, &live),
            ["annotation `c` of claim template `data`", "label `a` of claim template `data`"]
        );
        assert_eq!(manifest, set_with_templates(json!({"name": "data"}), "ours"));
        assert_eq!(take_metadata(&mut manifest, &live), [""; 0]);
    }
}
