//! Check of the requests and limits of containers for what Kubernetes would refuse and what is surely meant otherwise:
//! found where it was given, before anything is written.

use crate::api::quantity::{Milli, parse_quantity};
use crate::api::values::pod_values::Resources;
use crate::chart::{Diagnostic, ValuesTree};

/// The resources of a container whose names have no domain, besides huge pages.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Less memory than this, in MiB, is a unit that was forgotten: container runtimes ask for 4 to 12 before they start
/// anything.
const LEAST_MEMORY: Milli = 4;

/// Checks the `resources` at `path`, which fit their schema; `tree` knows where each was given.
pub fn check_resources(path: &[&str], resources: &Resources, tree: &ValuesTree) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let mut wrong = |side: &str, name: &str, diagnostic| {
        found.push(tree.locate_diagnostic(&[path, &["resources", side, name]].concat(), diagnostic));
    };
    for (side, quantities) in [("requests", &resources.requests), ("limits", &resources.limits)] {
        for name in quantities.keys().filter(|name| !is_resource(name)) {
            let message = format!("`{name}` is not a container resource");
            let expected = "expected `cpu`, `memory`, `ephemeral-storage`, `hugepages-SIZE` or a name with a domain";
            wrong(side, name, Diagnostic::error("unknown-resource", message).label(expected));
        }
    }
    for (name, limit) in &resources.limits {
        let text = &limit.0;
        let Some(amount) = parse_quantity(text) else { continue };
        if name == "memory" && !starts_within(amount) {
            let message = format!("`{text}` is too little memory for a container");
            let mut diagnostic = Diagnostic::error("out-of-range", message)
                .label(format!("expected at least {LEAST_MEMORY}Mi; without a unit it is bytes"));
            let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            if parse_quantity(&format!("{number}Mi")).is_some_and(starts_within) {
                diagnostic = diagnostic.help(format!("write `{number}Mi` if you mean mebibytes"));
            }
            wrong("limits", name, diagnostic);
            continue;
        }
        let Some(request) = resources.requests.get(name) else { continue };
        if parse_quantity(&request.0).is_some_and(|asked| asked > amount) {
            let key = [path, &["resources", "requests", &name.replace('.', "\\.")]].concat().join(".");
            let message = format!("the limit `{text}` is lower than the request `{}`", request.0);
            let help = format!("raise the limit, or request less: `--set {key}={text}`");
            wrong("limits", name, Diagnostic::error("limit-below-request", message).help(help));
        }
    }
    found
}

fn starts_within(memory: Milli) -> bool {
    memory >= LEAST_MEMORY * (1000 << 20)
}

fn is_resource(name: &str) -> bool {
    STANDARD.contains(&name) || name.starts_with("hugepages-") || name.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Chart, Diagnostics, Kind, SetKind};
    use schemars::{JsonSchema, schema_for};
    use serde::Deserialize;

    #[derive(Deserialize, JsonSchema)]
    struct Values {
        resources: Resources,
    }

    /// The problem with the agent's, as `path code`, and what is said.
    fn found(sets: &[&str]) -> (Vec<String>, String) {
        let mut builder = Chart::load_embedded(Kind::Agent, "v1.1".parse().unwrap()).unwrap().values_builder();
        for set in sets {
            builder = builder.set(SetKind::Value, set);
        }
        let tree = builder.build_checked(schema_for!(Values).into()).unwrap_or_else(|error| panic!("{error}"));
        let values: Values = tree.deserialize().unwrap();
        let problems = check_resources(&[], &values.resources, &tree);
        assert!(problems.iter().all(|problem| problem.place.is_some()), "{problems:?}");
        let codes = problems.iter().map(|problem| format!("{} {}", problem.path, problem.code)).collect();
        (codes, Diagnostics(problems).to_string())
    }

    #[test]
    fn what_kubernetes_takes_is_let_through() {
        for sets in [
            &[][..],
            &["resources.limits.memory=32Mi", "resources.limits.cpu=0.02"],
            &["resources.limits.memory=4194304", "resources.requests.memory=4Mi"],
            &["resources.limits.ephemeral-storage=1Gi", "resources.limits.hugepages-2Mi=4Mi"],
            &["resources.limits.example\\.com/device=1"],
        ] {
            assert_eq!(found(sets).0, [""; 0], "{sets:?}");
        }
    }

    #[test]
    fn a_limit_below_its_request_is_told_at_the_limit() {
        let (codes, text) = found(&["resources.limits.memory=31Mi", "resources.limits.cpu=19m"]);
        let expected = ["resources.limits.cpu limit-below-request", "resources.limits.memory limit-below-request"];
        assert_eq!(codes, expected);
        assert!(text.contains("`31Mi` is lower than the request `32Mi`"), "{text}");
        assert!(text.contains("--set resources.requests.memory=31Mi"), "{text}");
        let key = r"example\.com/device";
        let (_, text) = found(&[&format!("resources.requests.{key}=2,resources.limits.{key}=1")]);
        assert!(text.contains(&format!("--set resources.requests.{key}=1")), "{text}");
    }

    #[test]
    fn memory_whose_unit_was_forgotten_is_told_with_the_one_that_is_meant() {
        for (given, meant) in [("512", Some("512Mi")), ("512m", Some("512Mi")), ("512k", Some("512Mi")), ("3", None)] {
            let (codes, text) = found(&[&format!("resources.limits.memory={given}")]);
            assert_eq!(codes, ["resources.limits.memory out-of-range"], "{given}");
            assert_eq!(text.contains("if you mean mebibytes"), meant.is_some(), "{given}: {text}");
            assert!(meant.is_none_or(|meant| text.contains(&format!("write `{meant}`"))), "{given}: {text}");
        }
    }

    #[test]
    fn a_resource_that_no_container_has_is_told() {
        let (codes, _) = found(&["resources.requests.mem=64Mi", "resources.limits.storage=1Gi"]);
        assert_eq!(codes, ["resources.requests.mem unknown-resource", "resources.limits.storage unknown-resource"]);
    }
}
