//! Names that are parsed once, at the edge: of a control plane, of a workload cluster, of a namespace.

use std::fmt;
use std::str::FromStr;

use crate::api::util::text::{describe_foreign_character, visible_cell};

/// The namespace of an installation that is given no other.
pub const DEFAULT_NAMESPACE: &str = "fleet";

/// The name of an object that the whole cluster shares, such as a ClusterRole: with the namespace of the installation that it
/// belongs to, unless that is the default one.
pub fn cluster_wide_name(name: &str, namespace: &str) -> String {
    if namespace == DEFAULT_NAMESPACE { name.to_owned() } else { format!("{name}-{namespace}") }
}

/// The name of the roles for whoever installs or removes one of several control planes or agents: with the namespace, unless
/// that is the default one. No name has a `:`, so that two installations never share one.
pub fn operator_role_name(name: &str, namespace: &str) -> String {
    if namespace == DEFAULT_NAMESPACE { name.to_owned() } else { format!("{name}:{namespace}") }
}

/// A name that Kubernetes or the service would refuse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty text.
    #[error("the {what} is empty")]
    Empty {
        /// Noun for the name in the message, such as `namespace`.
        what: &'static str,
    },
    /// Over the limit.
    #[error("the {what} `{name}` has {length} characters; at most {limit} are allowed")]
    TooLong {
        /// Noun for the name in the message, such as `namespace`.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// Its length in characters.
        length: usize,
        /// The limit in characters.
        limit: usize,
    },
    /// Not a DNS label.
    #[error(
        "the {what} `{}`{} is not a valid name: use lower-case letters, digits and `-`, starting and ending with a letter or digit",
        visible_cell(name),
        describe_foreign_character(name)
    )]
    NotALabel {
        /// Noun for the name in the message, such as `namespace`.
        what: &'static str,
        /// The name that was given.
        name: String,
        /// A name close to what was given that would be accepted, when there is one.
        suggestion: Option<String>,
    },
}

/// Returns whether a text is a DNS label, whatever its length.
pub(super) fn is_label(text: &str) -> bool {
    text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && [text.chars().next(), text.chars().last()]
            .into_iter()
            .all(|edge| edge.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit()))
}

/// Returns whether a text is a DNS subdomain: DNS labels of at most 63 characters with dots between them, at most 253
/// characters together.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| part.len() <= 63 && is_label(part))
}

/// Returns whether a text is the key of a label or taint: a name, with or without a DNS subdomain and `/` before it.
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

/// Returns whether a text is the value of a label or taint; it may be empty.
pub fn is_label_value(text: &str) -> bool {
    text.len() <= 63
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && [text.chars().next(), text.chars().last()].into_iter().flatten().all(|c| c.is_ascii_alphanumeric())
}

fn close_label(text: &str) -> Option<String> {
    let lower: String = text
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' })
        .collect();
    let trimmed = lower.trim_matches('-');
    is_label(trimmed).then(|| trimmed.to_owned())
}

/// Checks a DNS label (RFC 1123) of at most `limit` characters.
fn check_label(what: &'static str, text: &str, limit: usize) -> Result<String, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if !is_label(text) {
        return Err(NameError::NotALabel { what, name: text.to_owned(), suggestion: close_label(text) });
    }
    if text.len() > limit {
        return Err(NameError::TooLong { what, name: text.to_owned(), length: text.len(), limit });
    }
    Ok(text.to_owned())
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = NameError;

            fn from_str(text: &str) -> Result<Self, NameError> {
                check_label($what, text, $limit).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The name of a control plane: also its kubectl context and its folder under `~/.fleet`.
    ControlPlaneName, "control plane name", 50
);
name!(
    /// The name of a workload cluster, unique in its control plane.
    ClusterName, "workload cluster name", 50
);
name!(
    /// A Kubernetes namespace.
    NamespaceName, "namespace", 63
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_and_errors_offer_a_close_one() {
        assert_eq!("prod-1".parse::<ControlPlaneName>().unwrap().as_str(), "prod-1");
        let error = "My_Cluster".parse::<ClusterName>().unwrap_err();
        assert!(
            matches!(error, NameError::NotALabel { suggestion: Some(ref s), .. } if s == "my-cluster"),
            "{error:?}"
        );
        for (text, shown) in [
            ("demo\u{200b}", r"`demo\u{200b}` (character 5 is U+200B)"),
            ("demo\u{a0}", r"`demo\u{a0}` (character 5 is U+00A0)"),
            ("d\u{435}mo", "`d\u{435}mo` (character 2 is U+0435)"),
            ("Demo\n", r"`Demo\n` is not"),
        ] {
            let error = text.parse::<ControlPlaneName>().unwrap_err().to_string();
            assert!(error.contains(shown), "{error}");
        }
        for text in ["", "-a", "a-", "a.b", "ä", "a b", "../x", &"x".repeat(51)] {
            assert!(text.parse::<ControlPlaneName>().is_err(), "{text}");
        }
    }
}
