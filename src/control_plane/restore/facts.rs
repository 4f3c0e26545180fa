//! What a restore remembers while it is open.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::components::{COMPONENTS, ETCD};
use super::error::RestoreError;
use super::fence::{FieldOwner, read_scale, read_selector_owner};
use super::{ArchiveSource, RestoreStage, RestoreTarget};
use crate::inventory::Operation;

/// What a restore remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RestoreFacts {
    /// SHA-256 of the archive.
    pub archive: String,
    /// Replicas of each component before the restore.
    pub replicas: BTreeMap<String, i32>,
    /// Owner of the fields that a restore changes: of `replicas` by component, and of the selector by `service`.
    pub owners: BTreeMap<String, FieldOwner>,
    /// Workload clusters that the backup names and that are deleted from it.
    pub forget: Vec<String>,
    /// Bytes that former stores take on all volumes since the swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former_bytes: Option<u64>,
}

/// Name of the selector among the owners of fields.
pub(super) const SERVICE: &str = "service";
/// Largest number of replicas that is believed.
const MOST_REPLICAS: i32 = 9;

impl RestoreFacts {
    /// Reads what a new restore has to remember. Nothing is written.
    pub(super) async fn collect(
        target: &RestoreTarget<'_>,
        source: &ArchiveSource,
        forget: &[String],
    ) -> Result<Self, RestoreError> {
        let (mut replicas, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for component in COMPONENTS {
            let (count, owner) = read_scale(target, component).await?;
            // One that somebody has stopped is started, or nothing would run afterwards.
            replicas.insert(component.to_owned(), count.clamp(1, MOST_REPLICAS));
            owners.extend(owner.map(|owner| (component.to_owned(), owner)));
        }
        owners.extend(read_selector_owner(target).await?.map(|owner| (SERVICE.to_owned(), owner)));
        let archive = source.verified.sha256.clone();
        Ok(Self { archive, replicas, owners, forget: forget.to_vec(), former_bytes: None })
    }

    /// Reads what an operation has recorded.
    pub(super) fn of_operation(operation: &Operation) -> Result<Self, RestoreError> {
        let facts: Self = serde_json::from_value(operation.facts.clone())
            .map_err(|error| RestoreError::BadOperation(error.to_string()))?;
        let is_sound = COMPONENTS
            .iter()
            .all(|component| facts.replicas.get(*component).is_some_and(|count| (1..=MOST_REPLICAS).contains(count)));
        if is_sound { Ok(facts) } else { Err(RestoreError::BadOperation("replica counts are missing".to_owned())) }
    }

    pub(super) fn to_value(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The stage at which an operation continues.
    pub(super) fn find_stage(operation: &Operation) -> Result<RestoreStage, RestoreError> {
        RestoreStage::from_name(&operation.stage)
            .ok_or_else(|| RestoreError::OperationOpen(Box::new(operation.clone())))
    }

    /// Replicas of a component before the restore.
    pub(super) fn replicas_of(&self, component: &str) -> i32 {
        self.replicas.get(component).copied().unwrap_or(1)
    }

    /// Number of etcd's members.
    pub(super) fn members(&self) -> usize {
        usize::try_from(self.replicas_of(ETCD)).unwrap_or(1)
    }
}
