//! What there is of kinds that are not placed.

use std::collections::BTreeMap;
use std::fmt::Display;

/// Numbers of objects by the value that places their kind, and by kind.
pub type UnplacedKinds = BTreeMap<&'static str, BTreeMap<String, usize>>;

/// Returns a clause for each value that would place something.
pub fn format_unplaced_kinds(found: &UnplacedKinds) -> impl Iterator<Item = String> {
    found.iter().map(|(value, kinds)| format!("{}: the value `{value}` places these kinds", format_counts(kinds)))
}

/// Returns numbers of objects by kind as a list: `2 Role, 1 RoleBinding`.
pub fn format_counts<K: Display>(kinds: &BTreeMap<K, usize>) -> String {
    let counts: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    counts.join(", ")
}
