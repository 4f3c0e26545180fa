//! Objects as kubectl names them: `deploy/x`, `deployments/x` or `apps/Deployment/x`.

use crate::api::kinds;
use crate::chart::Object;
use crate::cli::output::error::CliError;

/// The short names of kubectl, of the kinds that charts render.
const SHORT: [(&str, &str); 14] = [
    ("cj", "CronJob"),
    ("cm", "ConfigMap"),
    ("crd", "CustomResourceDefinition"),
    ("crds", "CustomResourceDefinition"),
    ("deploy", "Deployment"),
    ("ds", "DaemonSet"),
    ("netpol", "NetworkPolicy"),
    ("ns", "Namespace"),
    ("pdb", "PodDisruptionBudget"),
    ("po", "Pod"),
    ("pvc", "PersistentVolumeClaim"),
    ("sa", "ServiceAccount"),
    ("sts", "StatefulSet"),
    ("svc", "Service"),
];

/// Returns whether `text` names the object as kubectl takes it: `deploy/x`, `deployments/x` or `apps/Deployment/x`.
pub(crate) fn is_named(object: &Object, text: &str) -> bool {
    let parts: Vec<&str> = text.split('/').collect();
    let (group, kind, name) = match parts[..] {
        [kind, name] => (object.group(), kind, name),
        [group, kind, name] => (group, kind, name),
        _ => return false,
    };
    name == object.name() && group == object.group() && known_kind(kind).is_ok_and(|kind| kind == object.kind())
}

/// The field of `--explain` with its object as objects are called: `deploy/x#spec` becomes `deployment/x#spec`.
pub(crate) fn explained_field(field: &str) -> String {
    let Some((object, path)) = field.split_once('#') else { return field.to_owned() };
    let parts: Vec<&str> = object.split('/').collect();
    let [.., kind, name] = parts.as_slice() else { return field.to_owned() };
    match known_kind(kind) {
        Ok(kind) => format!("{}/{name}#{path}", kind.to_lowercase()),
        Err(_) => field.to_owned(),
    }
}

/// Arguments of `--take-fields` as the engine takes them: each separated by commas, the object as `Kind/name`. A comma
/// between brackets belongs to the path of a field.
pub(crate) fn taken_fields(given: &[String]) -> Vec<String> {
    given.iter().flat_map(|text| at_commas(text)).map(taken_field).collect()
}

fn at_commas(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_u32, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '[' if !quoted => depth += 1,
            ']' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

fn taken_field(text: &str) -> String {
    let text = text.trim();
    let Some((object, path)) = text.split_once(':').filter(|(object, _)| object.contains('/')) else {
        return text.to_owned();
    };
    let parts: Vec<&str> = object.split('/').collect();
    match parts.as_slice() {
        [kind, name] | [_, kind, name] => match known_kind(kind) {
            Ok(kind) => format!("{kind}/{name}:{path}"),
            Err(_) => text.to_owned(),
        },
        _ => text.to_owned(),
    }
}

/// A kind as it is written in objects, by its name, plural or short name in any case.
pub(crate) fn known_kind(name: &str) -> Result<&'static str, CliError> {
    let name = SHORT.iter().find(|(short, _)| short.eq_ignore_ascii_case(name)).map_or(name, |(_, kind)| *kind);
    let found = kinds::TABLE
        .iter()
        .find(|served| served.kind.eq_ignore_ascii_case(name) || served.plural.eq_ignore_ascii_case(name));
    found.map(|served| served.kind).ok_or_else(|| {
        CliError::usage("NoSuchKind", format!("`{name}` is not a kind of object"))
            .hint("for example `Secret` or `secrets`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_to_take_are_named_as_other_objects_are() {
        let given = [
            "deploy/api:.spec.replicas,deployments/api:.spec.paused",
            "apps/Deployment/api:.spec.template.spec.containers[name=\"a,b\",port=1].image",
            ".spec.replicas",
            "unknown/x:.a,",
        ];
        assert_eq!(
            taken_fields(&given.map(str::to_owned)),
            [
                "Deployment/api:.spec.replicas",
                "Deployment/api:.spec.paused",
                "Deployment/api:.spec.template.spec.containers[name=\"a,b\",port=1].image",
                ".spec.replicas",
                "unknown/x:.a",
            ]
        );
    }
}
