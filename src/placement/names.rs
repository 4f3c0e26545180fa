//! Names that must be the same for ever: of groups, of copies, of label values.

use super::facts::{Facts, ObjectKey};
use super::matching::Policy;
use crate::api::util::digest;

/// Key of a group: a label value in one namespace or in all, everything of a namespace, or one object alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(String);

impl GroupKey {
    /// Returns the key of the group that an object belongs to under a policy.
    pub fn new(facts: &Facts, policy: &Policy) -> Self {
        let namespace = facts.key.namespace();
        let shared = policy.spec.group_by.as_ref().and_then(|by| {
            if by.namespace {
                return (!namespace.is_empty()).then(|| format!("namespace\0{namespace}"));
            }
            let (key, value) = by.find_label(&facts.labels)?;
            let over_all = format!("label\0{key}\0{value}");
            Some(if by.across_namespaces { over_all } else { format!("{over_all}\0{namespace}") })
        });
        Self(shared.unwrap_or_else(|| format!("object\0{}", join_key_parts(&facts.key))))
    }

    /// Returns the key over all namespaces of a label value in one of them, as all groups by label had it once; `None` of any
    /// other key.
    pub fn across_namespaces(&self) -> Option<Self> {
        let (over_all, _) = self.0.strip_prefix("label\0")?.rsplit_once('\0')?;
        over_all.contains('\0').then(|| Self(format!("label\0{over_all}")))
    }

    /// The key as it is hashed, its parts separated by NUL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as `spec.key` of a group holds it.
    pub fn to_spec_key(&self) -> String {
        self.0.replace('\0', "/")
    }

    /// Returns whether it is of one object, so that the group cannot grow.
    pub fn is_of_one_object(&self) -> bool {
        self.0.starts_with("object\0")
    }

    /// Returns the name of the group: the policy's and 8 digits of the key's digest; 12 or 16 where a shorter name is taken by
    /// another key.
    pub fn group_name(&self, policy: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let [names @ .., last] = self.group_names(policy);
        names.into_iter().find(|name| !is_taken(name)).unwrap_or(last)
    }

    /// Returns the names that the group may have, the first first.
    pub fn group_names(&self, policy: &str) -> [String; 3] {
        let digest = digest::short_digest(self.0.as_bytes());
        [8, 12, 16].map(|digits| format!("{}-{}", truncate_name(policy, 244), &digest[..digits]))
    }
}

/// The parts of a key, separated by NUL.
fn join_key_parts(key: &ObjectKey) -> String {
    format!("{}\0{}\0{}\0{}", key.group(), key.kind(), key.namespace(), key.name())
}

/// The first bytes of a name, without a separator at the end.
fn truncate_name(name: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
    name[..end].trim_end_matches(['-', '.'])
}

/// Returns the value of the label `matching-policy`: the policy's name, shortened to what a label holds.
pub fn policy_label(policy: &str) -> String {
    if policy.len() <= 63 {
        return policy.to_owned();
    }
    format!("{}-{}", truncate_name(policy, 54), &digest::short_digest(policy.as_bytes())[..8])
}

/// Returns the name of a new Schedule of an object, which is the same in the namespace of every cluster: the object's
/// name, cut to 54 bytes, and 32 hexadecimal digits, so that no two objects get the same name. It has at most 87 bytes,
/// of the 253 that names of objects may have; no label or annotation holds it.
pub fn schedule_name(key: &ObjectKey) -> String {
    let full = [key.kind(), key.namespace(), key.name()].join(".").to_lowercase();
    let plain: String = full.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let parts: Vec<&str> =
        plain.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty()).collect();
    format!("{}-{}", truncate_name(&parts.join("."), 54), &digest::full_digest(join_key_parts(key).as_bytes())[..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_valid_whatever_the_source_is_called() {
        for name in ["x", ":admin:", "a..b", "-.-", "Ä", &"n.".repeat(120)] {
            let schedule = schedule_name(&ObjectKey::new("rbac.authorization.k8s.io", "ClusterRole", "", name));
            assert!(schedule.len() <= 87, "{name}: {schedule}");
            for part in schedule.split('.') {
                assert!(!part.is_empty() && !part.starts_with('-') && !part.ends_with('-'), "{name}: {schedule}");
                let is_allowed = part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
                assert!(is_allowed, "{name}: {schedule}");
            }
        }
    }

    #[test]
    fn names_of_copies_that_had_the_same_32_bits_differ() {
        // A second object whose digest begins with the same 8 digits is found in seconds.
        let mut seen = std::collections::BTreeMap::new();
        let twins = (0..400_000_u32).find_map(|number| {
            let secret = format!("{}-{number}", "x".repeat(60));
            let name = schedule_name(&ObjectKey::new("", "Secret", "shop", &secret));
            let start = name[..name.len() - 24].to_owned();
            seen.insert(start, name.clone()).map(|before| (before, name))
        });
        let (one, other) = twins.expect("two of so many share 32 bits");
        assert_ne!(one, other);
    }

    #[test]
    fn a_name_that_is_taken_gets_more_digits() {
        let key = GroupKey("label\0app\0web".to_owned());
        assert_eq!(key.group_name("shop", |_| false), "shop-6719e33a");
        assert_eq!(key.group_name("shop", |name| name.len() == 13), "shop-6719e33a46ff");
        assert_eq!(key.group_name("shop", |_| true), "shop-6719e33a46ffd46e");
        assert_eq!(key.group_name(&format!("{}-", "p".repeat(243)), |_| false).len(), 252);
        assert_eq!(key.to_spec_key(), "label/app/web");
        assert_eq!(key.across_namespaces(), None);
        assert_eq!(GroupKey("label\0app\0web\0shop".to_owned()).across_namespaces(), Some(key.clone()));
        assert_eq!(GroupKey("label\0app\0web\0".to_owned()).across_namespaces(), Some(key));
        assert_eq!(GroupKey("object\0\0ConfigMap\0shop\0web".to_owned()).across_namespaces(), None);
    }
}
