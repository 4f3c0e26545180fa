//! The inventory store: one small Secret with record, journal and lock.
//!
//! The three are in one object so that each step is one request and "the journal is closed" and "the record is new"
//! are the same write. The Secret is also the parent of the ApplySet. It never holds manifests, only former fields of
//! objects that a run in progress is changing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::history::History;
use super::journal::Journal;
use super::lock::Lock;
use super::operation::Operation;
use super::owner::{
    APPLYSET_ID_LABEL, APPLYSET_KINDS, APPLYSET_NAMESPACES, APPLYSET_TOOLING, INSTALL_LABEL, MANAGED_BY_LABEL,
    OWNER_KIND_LABEL, Owner,
};
use super::release::{Policy, Release};
use crate::api::util::text::visible_line;
use crate::k8s::object::{ObjectRef, object_annotation, text_at};
use crate::k8s::request::server::MANAGER;

/// The format of a record.
const FORMAT: u32 = 1;
/// The format while an operation is open, so that older programs, which know of no operation, refuse the record. It is the
/// newest one that this version reads.
const FORMAT_IN_OPERATION: u32 = 2;
const LOCK_ANNOTATION: &str = "fleet-scheduler.io/lock";
const WRITE_ANNOTATION: &str = "fleet-scheduler.io/write";

/// Phase of an installation: whether its objects are there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Installed.
    #[default]
    Installed,
    /// Uninstalled; the inventory is what was kept.
    Removed,
}

/// Origin of an owned object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// We made it.
    Created,
    /// It was there, and was taken over on request.
    Adopted,
}

/// One object of the inventory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    /// Its name; the version is left out because servers change it.
    #[serde(flatten)]
    pub object: ObjectRef,
    /// Its uid.
    pub uid: String,
    /// Its origin.
    pub origin: Origin,
    /// Its deletion policy.
    #[serde(default, skip_serializing_if = "is_delete")]
    pub policy: Policy,
    /// A keyed digest of what was applied; empty where it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// Number of fields of it that were ours when it was applied; 0 where it is not known. Fewer now means that somebody took
    /// some: the manifest itself is not remembered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fields: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_delete(policy: &Policy) -> bool {
    *policy == Policy::Delete
}

/// The record of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The format; a newer one is refused, not guessed at.
    pub format: u32,
    /// Owner of the installation.
    pub owner: Owner,
    /// Random id, made at the first install and kept over re-installs.
    pub install_uid: String,
    /// Installed, or removed with something kept.
    pub phase: Phase,
    /// Release that is installed.
    pub release: Release,
    /// True if we made the namespace.
    pub namespace_created: bool,
    /// Time at which the record was made, RFC 3339.
    pub written: String,
    /// Our objects, sorted.
    pub inventory: Vec<Item>,
}

impl Record {
    /// An empty record.
    pub(crate) fn new(owner: &Owner, install_uid: String, release: Release) -> Self {
        Self {
            format: FORMAT,
            owner: owner.clone(),
            install_uid,
            phase: Phase::Installed,
            release,
            namespace_created: false,
            written: jiff::Timestamp::now().to_string(),
            inventory: Vec::new(),
        }
    }

    /// The inventory's entry of an object.
    pub fn find_item(&self, object: &ObjectRef) -> Option<&Item> {
        self.inventory.iter().find(|item| item.object == *object)
    }

    /// Returns whether this very object (by uid) is in the inventory.
    pub fn has_object(&self, object: &ObjectRef, uid: &str) -> bool {
        self.find_item(object).is_some_and(|item| item.uid == uid)
    }
}

/// A digest of a manifest, keyed with the install uid so that equal Secrets of two installations differ.
pub(crate) fn digest_manifest(install_uid: &str, manifest: &Value) -> String {
    let mut hasher = Sha256::new();
    hasher.update(install_uid.as_bytes());
    hash_into(manifest, &mut hasher);
    let bytes = hasher.finalize();
    STANDARD.encode(&bytes[..15])
}

/// Hashes JSON independently of the order of keys. Lengths and type marks keep different trees apart.
fn hash_into(value: &Value, hasher: &mut Sha256) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            hasher.update(format!("o{}:", keys.len()));
            for key in keys {
                hasher.update(format!("{}:{key}", key.len()));
                hash_into(&map[key], hasher);
            }
        }
        Value::Array(items) => {
            hasher.update(format!("a{}:", items.len()));
            for item in items {
                hash_into(item, hasher);
            }
        }
        scalar => {
            let text = scalar.to_string();
            hasher.update(format!("s{}:{text}", text.len()));
        }
    }
}

/// Record, journal and lock as they are in the cluster.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct State {
    /// The last completed state; none before the first install is complete.
    pub record: Option<Record>,
    /// Journal of a run in progress, or of one that was interrupted.
    pub journal: Option<Journal>,
    /// Lock of the run that is at work.
    pub lock: Option<Lock>,
    /// The last runs.
    pub history: History,
    /// The operation that was begun last, open or not.
    pub operation: Option<Operation>,
    /// The Secret's uid, empty when there is none.
    pub(crate) uid: String,
    /// The Secret's resource version.
    pub(crate) version: String,
    /// The id of the last write, to recognise our own after a lost answer.
    pub(crate) write: String,
}

impl State {
    /// Returns whether nothing is known of the installation: there is neither record nor journal.
    pub fn is_empty(&self) -> bool {
        self.record.is_none() && self.journal.is_none()
    }

    /// Returns whether uid and resource version are of one look: a plan may put the version of an earlier one in.
    pub(crate) fn is_one_look(&self) -> bool {
        self.uid.is_empty() == self.version.is_empty()
    }

    /// Returns the number of bytes that record, journal and history take in the Secret.
    pub fn content_size(&self) -> usize {
        let record = self.record.as_ref().and_then(|record| serde_json::to_vec(record).ok());
        let journal = self.journal.as_ref().and_then(|journal| serde_json::to_vec(journal).ok());
        let history = serde_json::to_vec(&self.history).ok();
        [record, journal, history].into_iter().flatten().map(|bytes| bytes.len()).sum()
    }

    /// Reads the Secret.
    ///
    /// # Errors
    /// A sentence about what cannot be read.
    pub(crate) fn from_record_secret(secret: &Value) -> Result<Self, String> {
        if let Some(tooling) = object_annotation(secret, APPLYSET_TOOLING)
            && !tooling.starts_with("fleetctl/")
        {
            return Err(format!("it belongs to another tool, `{tooling}`"));
        }
        let record = decode_record_part(secret, "record")?;
        if let Some(bytes) = &record {
            let format = serde_json::from_slice::<Value>(bytes).ok().and_then(|r| r.get("format")?.as_u64());
            if format.is_some_and(|format| format > u64::from(FORMAT_IN_OPERATION)) {
                return Err("it was written by a newer fleetctl".to_owned());
            }
        }
        // Messages of serde name places, not values.
        let record: Option<Record> =
            record.map(|b| serde_json::from_slice(&b)).transpose().map_err(|e| format!("`record`: {e}"))?;
        let journal = decode_record_part(secret, "journal")?
            .map(|b| serde_json::from_slice(&b))
            .transpose()
            .map_err(|e| format!("`journal`: {e}"))?;
        let history = decode_record_part(secret, "history")?
            .map(|b| serde_json::from_slice(&b))
            .transpose()
            .map_err(|e| format!("`history`: {e}"))?;
        let operation = decode_record_part(secret, "operation")?
            .map(|b| serde_json::from_slice(&b))
            .transpose()
            .map_err(|e| format!("`operation`: {e}"))?;
        Ok(Self {
            record: record.map(|record| Record { format: FORMAT, ..record }),
            journal,
            operation,
            history: history.unwrap_or_default(),
            lock: object_annotation(secret, LOCK_ANNOTATION).and_then(|lock| serde_json::from_str(lock).ok()),
            uid: crate::k8s::object::object_uid(secret).to_owned(),
            version: text_at(secret, "/metadata/resourceVersion").unwrap_or_default().to_owned(),
            write: object_annotation(secret, WRITE_ANNOTATION).unwrap_or_default().to_owned(),
        })
    }

    /// Reads the Secret of an owner. The names in the record become parts of paths, so they must be names; those in the
    /// journal are compared with what the charts render before anything is done.
    ///
    /// # Errors
    /// A sentence about what cannot be read, or believed.
    pub(crate) fn read_of(owner: &Owner, secret: &Value) -> Result<Self, String> {
        let state = Self::from_record_secret(secret)?;
        if let Some(other) = state.record.as_ref().map(|record| &record.owner).filter(|other| *other != owner) {
            let other = [&other.kind, &other.name, &other.namespace].map(|word| visible_line(word));
            return Err(format!("its `record` belongs to {} {} in namespace {}", other[0], other[1], other[2]));
        }
        let mut recorded = state.record.iter().flat_map(|record| &record.inventory);
        match recorded.find(|item| !item.object.has_names()) {
            Some(item) => Err(format!("its `record` has an invalid entry: {}", visible_line(&item.object.to_string()))),
            None => Ok(state),
        }
    }

    /// The Secret with this content. Absent parts are written as null, which a merge patch removes.
    pub(crate) fn to_record_secret(&self, owner: &Owner) -> Value {
        let (kinds, namespaces) = self.format_members(owner);
        let is_open = self.operation.as_ref().is_some_and(|operation| operation.open);
        let format = if is_open { FORMAT_IN_OPERATION } else { FORMAT };
        let record = self.record.as_ref().map(|record| Record { format, ..record.clone() });
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "fleet-scheduler.io/record",
            "metadata": {
                "name": owner.record_name(),
                "namespace": owner.namespace,
                "labels": {
                    APPLYSET_ID_LABEL: owner.applyset_id(),
                    MANAGED_BY_LABEL: MANAGER,
                    INSTALL_LABEL: owner.name,
                    OWNER_KIND_LABEL: owner.kind,
                },
                "annotations": {
                    APPLYSET_TOOLING: concat!("fleetctl/v", env!("CARGO_PKG_VERSION")),
                    APPLYSET_KINDS: kinds,
                    APPLYSET_NAMESPACES: namespaces,
                    LOCK_ANNOTATION: self.lock.as_ref().and_then(|lock| serde_json::to_string(lock).ok()),
                    WRITE_ANNOTATION: self.write,
                },
            },
            "data": {
                "record": record.as_ref().map_or(Value::Null, encode_record_part),
                "operation": self.operation.as_ref().map_or(Value::Null, encode_record_part),
                "journal": self.journal.as_ref().map_or(Value::Null, encode_record_part),
                "history": if self.history.0.is_empty() { Value::Null } else { encode_record_part(&self.history) },
            },
        })
    }

    /// The sorted kinds and the further namespaces of all members, those of the journal included: the list must have
    /// grown before an object is applied, and shrinks only after the last one is gone.
    fn format_members(&self, owner: &Owner) -> (String, String) {
        let recorded = self.record.iter().flat_map(|record| record.inventory.iter().map(|item| &item.object));
        let begun = self.journal.iter().flat_map(|journal| journal.steps.iter().map(|step| &step.object));
        let (mut kinds, mut namespaces) = (Vec::new(), Vec::new());
        for object in recorded.chain(begun) {
            let kind =
                if object.group.is_empty() { object.kind.clone() } else { format!("{}.{}", object.kind, object.group) };
            kinds.push(kind);
            namespaces.extend(object.namespace.clone().filter(|namespace| *namespace != owner.namespace));
        }
        for names in [&mut kinds, &mut namespaces] {
            names.sort_unstable();
            names.dedup();
        }
        (kinds.join(","), namespaces.join(","))
    }
}

fn encode_record_part(part: &impl Serialize) -> Value {
    serde_json::to_vec(part).map_or(Value::Null, |bytes| STANDARD.encode(bytes).into())
}

/// Decodes a part of the Secret of a record.
///
/// # Errors
/// It is not base64.
fn decode_record_part(secret: &Value, name: &str) -> Result<Option<Vec<u8>>, String> {
    match text_at(secret, &format!("/data/{name}")) {
        None => Ok(None),
        Some(encoded) => STANDARD.decode(encoded).map(Some).map_err(|e| format!("`{name}` is not base64: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::lock::Holder;

    fn owner() -> Owner {
        Owner::new("control-plane", "demo", "fleet")
    }

    fn item(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Item {
        let object = ObjectRef {
            group: group.into(),
            kind: kind.into(),
            namespace: namespace.map(str::to_owned),
            name: name.into(),
        };
        Item {
            object,
            uid: format!("uid-{name}"),
            origin: Origin::Created,
            policy: Policy::Delete,
            digest: "d".into(),
            fields: 0,
        }
    }

    fn state() -> State {
        let mut record = Record::new(&owner(), "iuid".into(), Release { chart: "c".into(), ..Release::default() });
        record.inventory = vec![
            item("apps", "Deployment", Some("fleet"), "a"),
            item("", "Secret", Some("fleet"), "b"),
            item("", "Secret", Some("other"), "c"),
        ];
        let lock = Lock { holder: Holder::from_this_process(), expires: "2026-01-01T00:00:00Z".into() };
        let mut history = History::default();
        history.begin_revision("install", &lock.holder, Some(&record.release));
        State { record: Some(record), lock: Some(lock), history, write: "w1".into(), ..State::default() }
    }

    #[test]
    fn a_state_survives_the_way_through_its_secret() {
        let state = state();
        let secret = state.to_record_secret(&owner());
        assert_eq!(State::from_record_secret(&secret).unwrap(), state);
        assert_eq!(secret["metadata"]["annotations"][APPLYSET_KINDS], "Deployment.apps,Secret");
        assert_eq!(secret["metadata"]["annotations"][APPLYSET_NAMESPACES], "other");
    }

    fn stored_format(state: &State) -> Value {
        let secret = state.to_record_secret(&owner());
        let record = STANDARD.decode(secret["data"]["record"].as_str().unwrap()).unwrap();
        assert_eq!(State::from_record_secret(&secret).unwrap(), *state);
        serde_json::from_slice::<Value>(&record).unwrap()["format"].clone()
    }

    #[test]
    fn an_open_operation_keeps_older_programs_out() {
        let operation = Operation::new("restore", "r1".to_owned(), "fence", Value::Null);
        let open = State { operation: Some(operation.clone()), ..state() };
        assert_eq!((stored_format(&open), stored_format(&state())), (2.into(), 1.into()));
        let closed = State { operation: Some(Operation { open: false, ..operation }), ..state() };
        assert_eq!(stored_format(&closed), 1);
    }

    #[test]
    fn a_record_of_thirty_objects_is_small() {
        let mut state = state();
        let objects = (0..30).map(|n| {
            item("rbac.authorization.k8s.io", "RoleBinding", Some("fleet"), &format!("kube-controller-manager-{n}"))
        });
        state.record.as_mut().unwrap().inventory = objects.collect();
        assert!(serde_json::to_vec(&state.record).unwrap().len() < 8192);
    }

    #[test]
    fn the_record_of_another_tool_or_of_a_newer_version_is_refused() {
        let mut secret = state().to_record_secret(&owner());
        secret["data"]["record"] = STANDARD.encode(r#"{"format": 99}"#).into();
        assert!(State::from_record_secret(&secret).unwrap_err().contains("newer fleetctl"));
        secret["metadata"]["annotations"][APPLYSET_TOOLING] = "kubectl/v1.30".into();
        assert!(State::from_record_secret(&secret).unwrap_err().contains("kubectl/v1.30"));
    }

    #[test]
    fn a_digest_depends_on_content_and_installation_and_not_on_the_order_of_keys() {
        let one: Value = serde_json::from_str(r#"{"a": 1, "b": [1, "2"]}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b": [1, "2"], "a": 1}"#).unwrap();
        assert_eq!(digest_manifest("u", &one), digest_manifest("u", &two));
        assert_ne!(digest_manifest("u", &one), digest_manifest("v", &one));
        assert_ne!(digest_manifest("u", &json!({"a": [1, "2"]})), digest_manifest("u", &json!({"a": [1, 2]})));
        assert_ne!(
            digest_manifest("u", &json!({"a": [], "b": [1]})),
            digest_manifest("u", &json!({"a": [1], "b": []}))
        );
    }
}
