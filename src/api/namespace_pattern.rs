//! Names of namespaces as an operator lists them: one name, or a prefix that ends in `*`.

use std::fmt;
use std::str::FromStr;

use super::names::is_label;

/// Longest name of a namespace.
const LONGEST: usize = 63;

/// A name of a namespace, or the beginning of several names followed by `*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacePattern(String);

/// Reason that a text is no pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither the name of a namespace nor a prefix of one that ends with `*`, such as `cattle-*`")]
pub struct PatternError(String);

impl NamespacePattern {
    /// Pattern of the text in a schema.
    pub const SCHEMA: &'static str = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$|^[a-z0-9][-a-z0-9]{0,61}\*$";

    /// Returns whether it stands for a namespace.
    pub fn matches_namespace(&self, namespace: &str) -> bool {
        self.0.strip_suffix('*').map_or(self.0 == namespace, |prefix| namespace.starts_with(prefix))
    }
}

impl FromStr for NamespacePattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        let is_valid = match text.strip_suffix('*') {
            // A prefix may end in a dash: a letter behind it makes the name.
            Some(prefix) => prefix.len() < LONGEST && !prefix.is_empty() && is_label(&format!("{prefix}x")),
            None => text.len() <= LONGEST && is_label(text),
        };
        if is_valid { Ok(Self(text.to_owned())) } else { Err(PatternError(text.to_owned())) }
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches_namespace_name(pattern: &str, name: &str) -> bool {
        pattern.parse::<NamespacePattern>().unwrap().matches_namespace(name)
    }

    #[test]
    fn a_pattern_is_a_name_or_a_prefix() {
        assert!(
            matches_namespace_name("cert-manager", "cert-manager")
                && !matches_namespace_name("cert-manager", "cert-manager-2")
        );
        assert!(matches_namespace_name("cattle-*", "cattle-system") && !matches_namespace_name("cattle-*", "cattle"));
        assert!(matches_namespace_name("a*", "a") && !matches_namespace_name("a*", "b"));
        for text in ["", "*", "-*", "A", "a/b", "a*b", "a**", "a'", "a-", &"a".repeat(64)] {
            assert!(text.parse::<NamespacePattern>().is_err(), "{text}");
        }
    }
}
