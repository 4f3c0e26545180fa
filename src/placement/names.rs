//! Names that have to be the same for ever: of groups, of copies, of label values.

use super::facts::{Facts, ObjectKey};
use super::matching::Policy;
use crate::api::digest;

/// Key of a group: a label value, or one object alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey(String);

impl GroupKey {
    /// Returns the key of the group that an object belongs to under a policy.
    pub fn new(facts: &Facts, policy: &Policy) -> Self {
        let by_label = policy.spec.group_by.as_ref().and_then(|by| {
            let value = facts.labels.get(&by.label_key)?;
            Some(format!("label\0{}\0{value}", by.label_key))
        });
        Self(by_label.unwrap_or_else(|| format!("object\0{}", joined(&facts.key))))
    }

    /// The key as it is hashed, its parts separated by NUL.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The key as `spec.key` of a group holds it.
    pub fn printed(&self) -> String {
        self.0.replace('\0', "/")
    }

    /// Returns whether it is of objects with one label value, which may still grow.
    pub fn is_by_label(&self) -> bool {
        self.0.starts_with("label\0")
    }

    /// Returns the name of the group: the policy's and 8 digits of the key's digest; 12 or 16 where a shorter name is taken by
    /// another key.
    pub fn group_name(&self, policy: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let digest = digest::short(self.0.as_bytes());
        let name = |digits: usize| format!("{}-{}", cut(policy, 244), &digest[..digits]);
        [8, 12].map(name).into_iter().find(|name| !is_taken(name)).unwrap_or_else(|| name(16))
    }
}

/// The parts of a key, separated by NUL.
fn joined(key: &ObjectKey) -> String {
    format!("{}\0{}\0{}\0{}", key.group(), key.kind(), key.namespace(), key.name())
}

/// The first bytes of a name, without a separator at the end.
fn cut(name: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
    name[..end].trim_end_matches(['-', '.'])
}

/// Returns the value of the label `matching-policy`: the policy's name, shortened to what a label holds.
pub fn policy_label(policy: &str) -> String {
    if policy.len() <= 63 {
        return policy.to_owned();
    }
    format!("{}-{}", cut(policy, 54), &digest::short(policy.as_bytes())[..8])
}

/// Returns the name of an object's Schedule, which is the same in the namespace of every cluster.
pub fn schedule_name(key: &ObjectKey) -> String {
    let full = [key.kind(), key.namespace(), key.name()].join(".").to_lowercase();
    let plain: String = full.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
    let parts: Vec<&str> =
        plain.split('.').map(|part| part.trim_matches('-')).filter(|part| !part.is_empty()).collect();
    format!("{}-{}", cut(&parts.join("."), 54), &digest::short(joined(key).as_bytes())[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_copies_are_valid_whatever_the_source_is_called() {
        for name in ["x", ":admin:", "a..b", "-.-", "Ä", &"n.".repeat(120)] {
            let schedule = schedule_name(&ObjectKey::new("rbac.authorization.k8s.io", "ClusterRole", "", name));
            let is_valid = |part: &str| {
                !part.is_empty()
                    && !part.starts_with('-')
                    && !part.ends_with('-')
                    && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            };
            assert!(schedule.len() <= 63 && schedule.split('.').all(is_valid), "{name}: {schedule}");
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_more_digits() {
        let key = GroupKey("label\0app\0web".to_owned());
        assert_eq!(key.group_name("shop", |_| false), "shop-6719e33a");
        assert_eq!(key.group_name("shop", |name| name.len() == 13), "shop-6719e33a46ff");
        assert_eq!(key.group_name("shop", |_| true), "shop-6719e33a46ffd46e");
        assert_eq!(key.group_name(&format!("{}-", "p".repeat(243)), |_| false).len(), 252);
        assert_eq!(key.printed(), "label/app/web");
    }
}
