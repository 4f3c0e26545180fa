//! Kinds that an operator adds to those that can be placed, as both programs are given them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::labels::{ANNOTATION_PLACED_KINDS, is_own_group};
use super::{kinds, names, placeable};

/// API group of roles and their bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

/// Largest number of kinds that are taken from a record.
const MOST: usize = 100;

/// Kinds whose objects each cluster makes for itself: a copy of one would be wrong or fought over.
const OF_ONE_CLUSTER: [(&str, &str); 9] = [
    ("", "Node"),
    ("", "Event"),
    ("", "Endpoints"),
    ("", "PersistentVolume"),
    ("events.k8s.io", "Event"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("coordination.k8s.io", "Lease"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("apiregistration.k8s.io", "APIService"),
];

/// A kind that is to be placed beside those of the table: `GROUP/VERSION/Kind`, or `v1/Kind` of the core group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExtraKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version that is watched and applied.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// Reason that a text names no kind that can be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExtraKindError {
    /// The text does not have the form `GROUP/VERSION/Kind`, or `v1/Kind` of the core group.
    #[error("`{0}` is not of the form GROUP/VERSION/Kind, such as example.com/v1/Widget")]
    Form(String),
    /// The kind is in the table, so its objects can be placed anyway.
    #[error("objects of the kind {0} can already be placed")]
    Known(String),
    /// The kind is a role or a binding; these are added all together.
    #[error("add RBAC kinds with the value placement.allowRBACKinds or the flag --allow-rbac-kinds")]
    Rbac,
    /// The kind belongs to the service's own API, which is never placed.
    #[error("{0} belongs to the service's own API, which is never placed")]
    Own(String),
    /// Each cluster makes its own objects of the kind.
    #[error("each cluster creates its own objects of the kind {0}")]
    OfOneCluster(String),
}

impl ExtraKind {
    /// The kinds of roles and their bindings.
    pub fn rbac_kinds() -> [Self; 4] {
        ["ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"].map(|kind| Self {
            group: RBAC.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
        })
    }

    /// Reads a kind as a program recorded it, roles and their bindings included.
    ///
    /// # Errors
    /// Those of [`Self::from_str`], except for roles and their bindings.
    pub fn from_recorded(text: &str) -> Result<Self, ExtraKindError> {
        Self::rbac_kinds().into_iter().find(|kind| kind.to_string() == text).map_or_else(|| text.parse(), Ok)
    }

    /// The API version with its group, such as `example.com/v1`.
    pub fn api_version(&self) -> String {
        kinds::api_version(&self.group, &self.version)
    }

    /// Returns the wave in which copies of the kind are first applied: definitions before all that they define, rights
    /// before what uses them.
    pub fn apply_wave(&self) -> u8 {
        match self.group.as_str() {
            "apiextensions.k8s.io" => placeable::WAVE_DEFINITIONS,
            RBAC => placeable::WAVE_RIGHTS,
            _ => placeable::WAVE_REST,
        }
    }
}

impl fmt::Display for ExtraKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.api_version(), self.kind)
    }
}

impl FromStr for ExtraKind {
    type Err = ExtraKindError;

    fn from_str(text: &str) -> Result<Self, ExtraKindError> {
        let (group, version, kind) = match text.split('/').collect::<Vec<_>>()[..] {
            [version, kind] => ("", version, kind),
            [group, version, kind] if group.is_empty() || is_group(group) => (group, version, kind),
            _ => return Err(refuse_form(text)),
        };
        if !is_version(version) || !is_kind(kind) {
            return Err(refuse_form(text));
        }
        if group == RBAC {
            return Err(ExtraKindError::Rbac);
        }
        if is_own_group(group) {
            return Err(ExtraKindError::Own(group.to_owned()));
        }
        if placeable::find_builtin_kind(group, kind).is_some() {
            return Err(ExtraKindError::Known(kind.to_owned()));
        }
        if OF_ONE_CLUSTER.contains(&(group, kind)) {
            return Err(ExtraKindError::OfOneCluster(kind.to_owned()));
        }
        Ok(Self { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() })
    }
}

fn refuse_form(text: &str) -> ExtraKindError {
    ExtraKindError::Form(super::util::text::visible_line(text).into_owned())
}

fn is_group(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(|part| part.len() <= 63 && names::is_label(part))
}

/// `v1`, `v2beta3`: a version as API servers take it.
fn is_version(text: &str) -> bool {
    text.starts_with('v')
        && text.len() <= 63
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn is_kind(text: &str) -> bool {
    let letter = text.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase());
    letter && text.len() <= 63 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// The kinds that an agent recorded in the annotations of its identity Secret. What is no kind is passed over.
pub fn read_recorded_kinds(annotations: &BTreeMap<String, String>) -> BTreeSet<ExtraKind> {
    let text = annotations.get(ANNOTATION_PLACED_KINDS).map(String::as_str).unwrap_or_default();
    parse_kind_list(text)
}

/// The first hundred kinds of a list that a program recorded.
pub fn parse_kind_list(text: &str) -> BTreeSet<ExtraKind> {
    text.split(',').filter_map(|kind| ExtraKind::from_recorded(kind).ok()).take(MOST).collect()
}

/// All kinds that a program was told to add, each once.
pub fn collect_extra_kinds(extra_kinds: &[ExtraKind], allow_rbac_kinds: bool) -> Vec<ExtraKind> {
    let mut all = extra_kinds.to_vec();
    all.extend(ExtraKind::rbac_kinds().into_iter().filter(|_| allow_rbac_kinds));
    all.sort();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_read_and_printed() {
        for text in ["example.com/v1/Widget", "v1/LimitRange", "apps/v1/ControllerRevision", "a-b.io/v1beta2/X1"] {
            assert_eq!(text.parse::<ExtraKind>().unwrap().to_string(), text);
        }
        assert_eq!("/v1/LimitRange".parse::<ExtraKind>().unwrap().to_string(), "v1/LimitRange");
        for kind in ExtraKind::rbac_kinds() {
            assert_eq!(ExtraKind::from_recorded(&kind.to_string()), Ok(kind));
        }
        assert_eq!(ExtraKind::from_recorded("example.com/v1/Widget").unwrap().api_version(), "example.com/v1");
    }

    #[test]
    fn what_cannot_be_added_says_why() {
        for (text, why) in [
            ("", "GROUP/VERSION/Kind"),
            ("Widget", "GROUP/VERSION/Kind"),
            ("example.com/v1/widget", "GROUP/VERSION/Kind"),
            ("example.com/1/Widget", "GROUP/VERSION/Kind"),
            ("Example.com/v1/Widget", "GROUP/VERSION/Kind"),
            ("example.com/v1/Widget/x", "GROUP/VERSION/Kind"),
            ("example.com/v1/Wid\u{1b}get", "GROUP/VERSION/Kind"),
            ("apps/v1/Deployment", "can already be placed"),
            ("apps/v1beta1/Deployment", "can already be placed"),
            ("rbac.authorization.k8s.io/v1/Role", "--allow-rbac-kinds"),
            ("cluster.fleet-scheduler.io/v1alpha1/Cluster", "own API"),
            ("fleet-scheduler.io/v1/X", "own API"),
            ("v1/Node", "each cluster"),
        ] {
            let error = text.parse::<ExtraKind>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains('\u{1b}'), "{text}: {error}");
        }
        assert!("not-fleet-scheduler.io/v1/X".parse::<ExtraKind>().is_ok());
    }

    #[test]
    fn definitions_come_first_and_rights_before_what_uses_them() {
        let waves = [
            "apiextensions.k8s.io/v1/CustomResourceDefinition",
            "rbac.authorization.k8s.io/v1/Role",
            "example.com/v1/Widget",
        ]
        .map(|text| ExtraKind::from_recorded(text).unwrap().apply_wave());
        assert!(waves[0] < waves[1] && waves[1] < waves[2]);
    }
}
