//! `KIND/NAME` as kubectl takes it: kinds by name, plural and short name, with or without the group.

use crate::api::placeable::{Kinds, Placeable};
use crate::cli::output::error::CliError;

/// Short names that kubectl knows.
const SHORT: [(&str, &str); 16] = [
    ("ns", "namespaces"),
    ("pc", "priorityclasses"),
    ("cm", "configmaps"),
    ("sa", "serviceaccounts"),
    ("pvc", "persistentvolumeclaims"),
    ("pdb", "poddisruptionbudgets"),
    ("netpol", "networkpolicies"),
    ("svc", "services"),
    ("po", "pods"),
    ("deploy", "deployments"),
    ("sts", "statefulsets"),
    ("ds", "daemonsets"),
    ("rs", "replicasets"),
    ("cj", "cronjobs"),
    ("hpa", "horizontalpodautoscalers"),
    ("ing", "ingresses"),
];

/// Finds a kind by what a user calls it.
pub(in crate::cli) fn find_kind(kinds: &Kinds, text: &str) -> Option<&'static Placeable> {
    let lower = text.to_lowercase();
    let (name, group) = lower.split_once('.').map_or((lower.as_str(), None), |(name, group)| (name, Some(group)));
    let plural = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, plural)| *plural);
    kinds.iter().find(|kind| {
        (kind.plural == plural || kind.kind.to_lowercase() == plural) && group.is_none_or(|group| group == kind.group)
    })
}

/// Splits `KIND/NAME`, whatever the kind.
///
/// # Errors
/// What is wrong with it.
pub(in crate::cli) fn split_kind_and_name(text: &str) -> Result<(&str, &str), String> {
    text.split_once('/')
        .filter(|(kind, name)| !kind.is_empty() && !name.is_empty())
        .ok_or_else(|| "expected KIND/NAME, such as deployment/web".to_owned())
}

/// Finds the kind of `KIND/NAME`.
///
/// # Errors
/// What is wrong with it.
pub(in crate::cli) fn parse_kind_and_name<'a>(
    kinds: &Kinds,
    text: &'a str,
) -> Result<(&'static Placeable, &'a str), String> {
    let (kind, name) = split_kind_and_name(text)?;
    let found = find_kind(kinds, kind).ok_or_else(|| {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.kind).collect();
        format!("`{kind}` is not a kind that can be placed; these are: {}", kinds.join(", "))
    })?;
    Ok((found, name))
}

/// The error of an argument that names no kind, or no object.
pub(in crate::cli) fn no_such_kind_error(object: &str, why: String) -> CliError {
    CliError::usage("NoSuchKind", format!("cannot read `{object}`")).cause(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_every_name_that_kubectl_takes() {
        for text in ["deployment", "Deployment", "deployments", "deploy", "deployment.apps", "deploy.apps"] {
            assert_eq!(find_kind(&Kinds::default(), text).map(|kind| kind.kind), Some("Deployment"), "{text}");
        }
        assert_eq!(find_kind(&Kinds::default(), "hpa").map(|kind| kind.plural), Some("horizontalpodautoscalers"));
        assert!(
            find_kind(&Kinds::default(), "deployment.batch").is_none()
                && find_kind(&Kinds::default(), "node").is_none()
        );
        for (short, plural) in SHORT {
            assert_eq!(find_kind(&Kinds::default(), short).map(|kind| kind.plural), Some(plural));
        }
    }

    #[test]
    fn a_name_without_a_kind_is_an_error_that_says_what_is_expected() {
        assert_eq!(
            parse_kind_and_name(&Kinds::default(), "deploy/web").map(|(kind, name)| (kind.kind, name)),
            Ok(("Deployment", "web"))
        );
        for text in ["web", "/web", "deployment/"] {
            assert!(parse_kind_and_name(&Kinds::default(), text).unwrap_err().contains("KIND/NAME"), "{text}");
        }
        assert!(parse_kind_and_name(&Kinds::default(), "node/a").unwrap_err().contains("Deployment"));
    }
}
