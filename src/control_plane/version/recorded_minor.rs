//! The Kubernetes minor that the API server of a control plane had when its record was written: what its data, which an
//! uninstall keeps, was stored by.

use serde_json::Value;

use super::kubernetes_downgrade;
use crate::api::version::{KubeMinor, ServiceLine, ServiceVersion};
use crate::inventory::{Release, State};

/// Name of the fact of a record that holds the minor, such as `v1.36`.
pub(in crate::control_plane) const FACT: &str = "apiServer";

/// First line whose records from before there was the fact are of an API server of 1.31; those of older lines are of
/// one of 1.25.
const FIRST_OF_31: ServiceLine = ServiceLine { major: 0, minor: 9 };

/// Returns the minor, as far as the record says it.
pub(in crate::control_plane) fn minor_from_state(state: &State) -> Option<KubeMinor> {
    of_release(&state.record.as_ref()?.release)
}

fn of_release(release: &Release) -> Option<KubeMinor> {
    if let Some(recorded) = release.facts.get(FACT) {
        return recorded.parse().ok();
    }
    let tag = release.values.as_ref().and_then(|values| values.pointer("/apiserver/image/tag")).and_then(Value::as_str);
    if let Some(tag) = tag {
        return of_tag(tag);
    }
    let version: ServiceVersion = release.version.parse().ok()?;
    Some(KubeMinor::new(1, if version.service_line() < FIRST_OF_31 { 25 } else { 31 }))
}

/// The minor that a tag names; nothing of a digest alone.
pub(in crate::control_plane) fn of_tag(tag: &str) -> Option<KubeMinor> {
    kubernetes_downgrade::image_minor(&format!(":{tag}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_say_it_by_their_fact_and_those_of_before_by_their_values_or_their_version() {
        for (version, values, fact, minor) in [
            ("v0.6.1", None, Some("v1.36"), Some(36)),
            ("v0.6.1", None, None, Some(25)),
            ("v0.8.0", Some(json!({})), None, Some(25)),
            ("v0.9.0", None, None, Some(31)),
            ("v0.6.1", Some(json!({"apiserver": {"image": {"tag": "v1.31.4@sha256:00"}}})), None, Some(31)),
            ("v0.6.1", Some(json!({"apiserver": {"image": {"tag": "sha256:00"}}})), None, None),
            ("", None, None, None),
        ] {
            let facts = fact.map(|fact| (FACT.to_owned(), fact.to_owned())).into_iter().collect();
            let release = Release { version: version.to_owned(), values, facts, ..Release::default() };
            assert_eq!(of_release(&release), minor.map(|minor| KubeMinor::new(1, minor)), "{release:?}");
        }
    }
}
