//! What an archive says about itself: a header before its data, a footer behind it, and a file beside it with nothing secret.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The newest format that this version writes and reads.
pub const FORMAT: u32 = 1;

/// The first part of an archive: what it is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The format; a newer one is refused, not guessed at.
    pub format: u32,
    /// Name of the control plane.
    pub control_plane: String,
    /// Its namespace in the hosting cluster.
    pub namespace: String,
    /// Time at which the backup began.
    pub taken: Timestamp,
    /// Id of the installation, from its record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_uid: Option<String>,
    /// UID of the namespace `kube-system` of the control plane: what agents take for its identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_uid: Option<String>,
    /// Versions of what ran.
    pub versions: Versions,
    /// Members of etcd, as the member lists them that was read.
    pub members: Vec<MemberName>,
    /// Pod of the member that was read.
    pub read_from: String,
    /// Whether this member knew of a leader. Without one, its data may be older than that of the others.
    pub quorum: bool,
    /// Largest size of the store, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_bytes: Option<u64>,
    /// Revisions between which the snapshot is.
    pub revision: RevisionRange,
    /// Size of the snapshot, in bytes.
    pub snapshot_bytes: u64,
    /// Whether the keys are in it.
    pub keys: bool,
    /// SHA-256 of each CA certificate and of each key for encryption at rest, by its file in the key set.
    pub fingerprints: BTreeMap<String, String>,
    /// Registered workload clusters; none if the control plane's API did not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clusters: Option<Vec<ClusterId>>,
    /// Patches that the installation was rendered with, as its record sums them up: the patches themselves are not in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patches: Option<String>,
}

/// Versions of what ran when a backup was made; none where they could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Versions {
    /// The program that made the backup.
    pub fleetctl: String,
    /// The service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<String>,
    /// The API server of the control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<String>,
    /// The member of etcd that was read.
    pub etcd: String,
}

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberName {
    /// Identifier in hexadecimal.
    pub id: String,
    /// Name.
    pub name: String,
}

/// Revisions before and after the snapshot was begun; its own is one of them, or between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevisionRange {
    /// Everything up to this revision is in it.
    pub from: i64,
    /// Nothing behind this revision is in it.
    pub to: i64,
}

/// A registered workload cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterId {
    /// Its name.
    pub name: String,
    /// Its id: the UID of its namespace `kube-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

/// The last part of an archive: every part before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// The parts in their order.
    pub parts: Vec<Part>,
}

/// A part of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Name, as tar has it.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// The file beside an archive: what can be known of it without a key. Nothing in it is secret, and nothing of it is trusted
/// more than the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Sidecar {
    /// The format of the archive.
    pub format: u32,
    /// Name of the control plane.
    pub control_plane: String,
    /// Its namespace in the hosting cluster.
    pub namespace: String,
    /// Time at which the backup began.
    pub taken: Timestamp,
    /// Versions of what ran.
    pub versions: Versions,
    /// Revisions between which the snapshot is.
    pub revision: RevisionRange,
    /// Size of the archive, in bytes.
    pub bytes: u64,
    /// SHA-256 of the archive, in hexadecimal.
    pub sha256: String,
    /// Whether the keys are in it.
    pub keys: bool,
    /// Recipients that can open it, or `passphrase`; empty if it is not sealed.
    pub sealed_for: Vec<String>,
    /// When it was last started, and everything could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rehearsed: Option<Rehearsed>,
}

/// A rehearsal without a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rehearsed {
    /// Time at which it ended.
    pub at: Timestamp,
    /// Revision of the store that was read.
    pub revision: i64,
}

impl Sidecar {
    /// The file beside an archive that was written with this header.
    pub fn from_header(header: &Header, bytes: u64, sha256: String, sealed_for: Vec<String>) -> Self {
        Self {
            format: header.format,
            control_plane: header.control_plane.clone(),
            namespace: header.namespace.clone(),
            taken: header.taken,
            versions: header.versions.clone(),
            revision: header.revision,
            bytes,
            sha256,
            keys: header.keys,
            sealed_for,
            rehearsed: None,
        }
    }
}
