//! Requests of the annotations of an object.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::labels::{
    ANNOTATION_ADOPT, ANNOTATION_ALLOW_VOLUME_MOVE, ANNOTATION_CLUSTER, ANNOTATION_LEAVE_FIELDS, ANNOTATION_ON_DELETE,
    ANNOTATION_SPREAD_ONTO,
};

/// Most clusters that an annotation names.
const CLUSTERS: usize = 1_000;
/// Most fields of a copy that are left to others: as many as a Schedule holds.
pub const LEAVE_FIELDS: usize = 32;
/// Longest path of such a field, in bytes.
const PATH: usize = 1_024;
/// Bytes that are kept of the name of a cluster; the names of clusters are shorter.
const NAME: usize = 64;

/// Requests of the annotations of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asks {
    /// The one cluster to place onto; empty keeps the object in the control plane.
    pub cluster: Option<String>,
    /// The clusters to spread over.
    pub spread_onto: Option<SpreadOnto>,
    /// Whether an object that already exists is adopted.
    pub adopt: bool,
    /// Fields that are left to others in the workload cluster.
    pub leave_fields: Vec<String>,
    /// Whether the copies are retained when the source is deleted.
    pub keep_on_delete: bool,
    /// Whether the group may move although the object has volumes.
    pub allow_volume_move: bool,
    /// Request that cannot be met, so that no copy is made.
    #[serde(default)]
    pub invalid: Option<InvalidAsk>,
}

/// Request of an annotation that cannot be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InvalidAsk {
    /// `spread-onto` names too many clusters.
    SpreadOnto,
    /// `leave-fields` names too many fields.
    LeaveFields,
    /// A path in `leave-fields` is too long.
    LongPath,
}

impl fmt::Display for InvalidAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SpreadOnto => {
                write!(f, "the annotation {ANNOTATION_SPREAD_ONTO} names more than {CLUSTERS} clusters; name fewer")
            }
            Self::LeaveFields => {
                write!(
                    f,
                    "more than {LEAVE_FIELDS} fields are left to other field managers; name fewer in the annotation \
                     {ANNOTATION_LEAVE_FIELDS}"
                )
            }
            Self::LongPath => {
                write!(f, "a path in the annotation {ANNOTATION_LEAVE_FIELDS} has more than {PATH} bytes")
            }
        }
    }
}

/// The annotation `spread-onto`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpreadOnto {
    /// Clusters, the preferred first, each once; none where too many are named.
    pub clusters: Vec<String>,
    /// Whether each cluster gets a whole copy, instead of dividing.
    pub duplicate: bool,
}

/// Returns what is kept of the name of a cluster. A longer one is that of no cluster, and neither is what is kept of it.
fn truncate_cluster_name(text: &str) -> String {
    let end = (0..=NAME.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
    text[..end].to_owned()
}

impl SpreadOnto {
    /// Reads the annotation.
    ///
    /// # Errors
    /// The annotation without clusters where it names too many.
    fn parse_spread_onto(text: &str) -> Result<Self, Self> {
        let (list, duplicate) = match text.trim().rsplit_once("::") {
            Some((list, "Duplicate")) => (list, true),
            Some((list, "Divide")) => (list, false),
            _ => (text, false),
        };
        let (mut clusters, mut seen) = (Vec::new(), BTreeSet::new());
        for one in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            if !seen.insert(one) {
                continue;
            }
            if clusters.len() == CLUSTERS {
                return Err(Self { clusters: Vec::new(), duplicate });
            }
            clusters.push(truncate_cluster_name(one));
        }
        Ok(Self { clusters, duplicate })
    }
}

impl Asks {
    /// Returns whether one of these clusters is named.
    pub fn names_any(&self, clusters: &BTreeSet<String>) -> bool {
        let onto = self.spread_onto.iter().flat_map(|onto| &onto.clusters);
        self.cluster.iter().chain(onto).any(|name| clusters.contains(name))
    }

    /// Reads the annotations of a manifest.
    pub(super) fn read_annotations(manifest: &Value) -> Self {
        let annotations = &manifest["metadata"]["annotations"];
        let mut invalid = None;
        let spread_onto = annotations[ANNOTATION_SPREAD_ONTO].as_str().map(|text| {
            SpreadOnto::parse_spread_onto(text).unwrap_or_else(|without| {
                invalid = Some(InvalidAsk::SpreadOnto);
                without
            })
        });
        let fields = annotations[ANNOTATION_LEAVE_FIELDS].as_str().unwrap_or_default().split(',').map(str::trim);
        let mut fields: Vec<&str> = fields.filter(|path| !path.is_empty()).take(LEAVE_FIELDS + 1).collect();
        if fields.len() > LEAVE_FIELDS {
            invalid = Some(InvalidAsk::LeaveFields);
        } else if fields.iter().any(|path| path.len() > PATH) {
            invalid = Some(InvalidAsk::LongPath);
        }
        fields.retain(|_| invalid.is_none());
        Self {
            cluster: annotations[ANNOTATION_CLUSTER].as_str().map(|text| truncate_cluster_name(text.trim())),
            spread_onto,
            adopt: annotations[ANNOTATION_ADOPT] == "true",
            leave_fields: fields.into_iter().map(str::to_owned).collect(),
            keep_on_delete: annotations[ANNOTATION_ON_DELETE] == "keep",
            allow_volume_move: annotations[ANNOTATION_ALLOW_VOLUME_MOVE] == "true",
            invalid,
        }
    }
}
