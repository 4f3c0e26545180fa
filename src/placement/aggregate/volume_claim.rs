//! Status of PersistentVolumeClaims: the worst phase, and the size that every copy has at least.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Serving;
use super::conditions;

/// Phases, the worst first.
const PHASES: [&str; 3] = ["Lost", "Pending", "Bound"];
/// Ways of access.
const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];
/// Endings of a quantity, each with its factor.
const SUFFIXES: [(&str, u128); 13] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
    ("k", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("E", 1_000_000_000_000_000_000),
    ("", 1),
];

impl Serving<'_> {
    pub(super) fn aggregate_volume_claim(&self, status: &mut Map<String, Value>) {
        let is_in = |phase: &str| self.copies.iter().any(|copy| copy.text_field("phase") == Some(phase));
        let Some(phase) = PHASES.into_iter().find(|phase| is_in(phase)) else { return };
        status.insert("phase".to_owned(), phase.into());
        let all = conditions::merge_conditions(&self.copies);
        conditions::insert_conditions(status, all);
        if phase != "Bound" {
            return;
        }
        let mut capacity: BTreeMap<&str, (u128, &str)> = BTreeMap::new();
        for copy in &self.copies {
            let all = copy.status_field("capacity").and_then(Value::as_object).into_iter().flatten();
            for (name, text) in all.filter(|(name, _)| *name == "storage") {
                if let Some((bytes, text)) = text.as_str().and_then(|text| Some((parse_bytes(text)?, text))) {
                    let least = capacity.entry(name).or_insert((bytes, text));
                    *least = (*least).min((bytes, text));
                }
            }
        }
        if !capacity.is_empty() {
            let capacity: Map<String, Value> =
                capacity.into_iter().map(|(name, (_, text))| (name.to_owned(), text.into())).collect();
            status.insert("capacity".to_owned(), capacity.into());
        }
        let modes = self.copies.iter().find_map(|copy| copy.status_field("accessModes")?.as_array());
        let modes: Vec<Value> = modes
            .into_iter()
            .flatten()
            .filter(|mode| mode.as_str().is_some_and(|mode| ACCESS_MODES.contains(&mode)))
            .take(ACCESS_MODES.len())
            .cloned()
            .collect();
        if !modes.is_empty() {
            status.insert("accessModes".to_owned(), modes.into());
        }
    }
}

/// Parses a size in whole bytes; `None` for what an API server does not take as a capacity.
fn parse_bytes(text: &str) -> Option<u128> {
    let (suffix, factor) = SUFFIXES.into_iter().find(|(suffix, _)| text.ends_with(suffix))?;
    let number = text.strip_suffix(suffix)?;
    let is_number = (1..=20).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse::<u128>().ok().filter(|_| is_number)?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_bytes() {
        for (text, bytes) in [
            ("1Gi", Some(1 << 30)),
            ("5", Some(5)),
            ("2k", Some(2000)),
            ("-1Gi", None),
            ("1.5Gi", None),
            ("Gi", None),
            ("1m", None),
        ] {
            assert_eq!(parse_bytes(text), bytes, "{text}");
        }
    }
}
