//! What a rehearsal of a backup finds: one line of JSON, from the pod that reads everything to whoever has started it.

use serde::{Deserialize, Serialize};

/// Largest size of a report in bytes: a kubelet keeps 12 KiB of the messages of all containers of a pod, and of each the same
/// part. The pod of a rehearsal has six.
pub const MOST_REPORT_BYTES: usize = 2048;
/// Longest text in a finding, in characters.
const MOST_CHARACTERS: usize = 200;

/// What a rehearsal has found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RehearsalReport {
    /// Revision of the store that was read.
    pub revision: i64,
    /// Number of kinds that were listed whole.
    pub kinds: u64,
    /// Number of their objects.
    pub objects: u64,
    /// Faults that were found, without those for which there was no room.
    pub findings: Vec<RehearsalFinding>,
    /// Number of all faults.
    pub faults: u64,
}

/// A fault of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RehearsalFinding {
    /// A key of etcd, a kind, or a part of the control plane.
    pub about: String,
    /// What is wrong with it, a clause.
    pub why: String,
}

impl RehearsalReport {
    /// Adds a fault.
    pub fn add_fault(&mut self, about: &str, why: &str) {
        self.faults += 1;
        let [about, why] = [about, why].map(|text| text.chars().take(MOST_CHARACTERS).collect());
        self.findings.push(RehearsalFinding { about, why });
    }

    /// Adds a fault that is counted and not named.
    pub fn count_fault(&mut self) {
        self.faults += 1;
    }

    /// The report as one line of at most [`MOST_REPORT_BYTES`]: what has no room is only counted.
    pub fn to_line(&self) -> String {
        let mut shown = self.clone();
        loop {
            let line = serde_json::to_string(&shown).unwrap_or_default();
            if line.len() <= MOST_REPORT_BYTES || shown.findings.pop().is_none() {
                return line;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_room_in_a_message_and_counts_what_has_none() {
        let mut report = RehearsalReport { revision: 7, kinds: 3, objects: 9, ..RehearsalReport::default() };
        assert_eq!(serde_json::from_str::<RehearsalReport>(&report.to_line()).unwrap(), report);
        for number in 0..100 {
            report.add_fault(&format!("/registry/secrets/shop/s{number}"), &"\u{1b}ü\"".repeat(300));
        }
        let line = report.to_line();
        assert!(line.len() <= MOST_REPORT_BYTES, "{}", line.len());
        let read: RehearsalReport = serde_json::from_str(&line).unwrap();
        assert_eq!((read.faults, read.findings.is_empty()), (100, false));
        assert_eq!(read.findings[0].about, "/registry/secrets/shop/s0");
    }
}
