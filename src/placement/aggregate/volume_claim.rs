//! Status of PersistentVolumeClaims: the worst phase, and the size that every copy has at least.

use serde_json::{Map, Value, json};

use super::Serving;
use super::conditions;
use super::copy::CopyStatus;
use crate::api::quantity::{Milli, parse_quantity};

/// Phases, the worst first.
const PHASES: [&str; 3] = ["Lost", "Pending", "Bound"];
/// Ways of access.
const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

impl Serving<'_> {
    pub(super) fn aggregate_volume_claim(&self, status: &mut Map<String, Value>) {
        let Some(phase) =
            PHASES.into_iter().find(|phase| self.copies.iter().any(|copy| copy.text_field("phase") == Some(*phase)))
        else {
            return;
        };
        status.insert("phase".to_owned(), phase.into());
        let all = conditions::merge_conditions(&self.copies);
        conditions::insert_conditions(status, all);
        if phase != "Bound" {
            return;
        }
        if let Some((_, least)) = self.copies.iter().copied().filter_map(read_storage).min() {
            status.insert("capacity".to_owned(), json!({ "storage": least }));
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

/// Reads the size that a copy has, and its text.
fn read_storage(copy: &CopyStatus) -> Option<(Milli, &str)> {
    let text = copy.status_field("capacity")?.get("storage")?.as_str()?;
    Some((parse_size(text)?, text))
}

/// Parses a size of whole bytes; `None` for what is no capacity.
fn parse_size(text: &str) -> Option<Milli> {
    parse_quantity(text).filter(|size| *size >= 0 && size % 1000 == 0)
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
            ("1.5Gi", Some(3 << 29)),
            ("-1Gi", None),
            ("1.5", None),
            ("Gi", None),
            ("1m", None),
        ] {
            assert_eq!(parse_size(text), bytes.map(|bytes: Milli| bytes * 1000), "{text}");
        }
    }
}
