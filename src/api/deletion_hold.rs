//! The hold of deletions: while the control plane's namespace `kube-system` has its annotation, agents keep the copies that have
//! no Schedule.
//!
//! A control plane that was restored knows no Schedule that is newer than its backup. Without a hold, agents would delete what
//! runs because of these.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::jiff::Timestamp;

use super::labels::ANNOTATION_HOLD_DELETIONS;

/// A hold of deletions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionHold {
    /// Time since when, if the annotation says it.
    since: Option<Timestamp>,
}

impl DeletionHold {
    /// Reads the metadata of `kube-system`. The annotation holds whatever its value is; a time in RFC 3339 says since when.
    pub fn from_metadata(metadata: &ObjectMeta) -> Option<Self> {
        let value = metadata.annotations.as_ref()?.get(ANNOTATION_HOLD_DELETIONS)?;
        Some(Self { since: value.parse().ok() })
    }
}

impl fmt::Display for DeletionHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            Some(since) => write!(f, "held since {since}"),
            None => f.write_str("held"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold_of_annotation(key: &str, value: &str) -> Option<DeletionHold> {
        let annotations = Some([(key.to_owned(), value.to_owned())].into());
        DeletionHold::from_metadata(&ObjectMeta { annotations, ..ObjectMeta::default() })
    }

    #[test]
    fn any_value_holds_and_a_time_is_shown() {
        assert_eq!(
            hold_of_annotation(ANNOTATION_HOLD_DELETIONS, "2027-03-12T10:15:00Z").unwrap().to_string(),
            "held since 2027-03-12T10:15:00Z"
        );
        for value in ["", "true", "false", "yesterday\u{1b}[2J"] {
            assert_eq!(hold_of_annotation(ANNOTATION_HOLD_DELETIONS, value).unwrap().to_string(), "held", "{value:?}");
        }
        assert_eq!(hold_of_annotation("fleet-scheduler.io/hold", ""), None);
        assert_eq!(DeletionHold::from_metadata(&ObjectMeta::default()), None);
    }
}
