//! The labels that mark the objects of one installation, and its ApplySet.
//!
//! Label and annotation keys of ApplySets are those of kubectl's code (`applyset.kubernetes.io/*`), which differ from
//! the enhancement proposal's text; ids are `applyset-` + unpadded base64url of the SHA-256 of
//! `name.namespace.kind.group` of the parent + `-v1`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

use super::labels::{LABEL_INSTALL, LABEL_INSTALL_KIND};

/// The label that names the tool, as Kubernetes recommends it.
pub const MANAGED_BY_LABEL: &str = "app.kubernetes.io/managed-by";
/// The label on members of an ApplySet: its id.
pub const PART_OF_LABEL: &str = "applyset.kubernetes.io/part-of";

/// The kind of an installation that is a control plane.
pub const CONTROL_PLANE: &str = "control-plane";
/// The tool, as value of [`MANAGED_BY_LABEL`].
pub const TOOL: &str = "fleetctl";

/// The name of the Secret with the record of an installation, which is the parent of its ApplySet: `fleetctl.<name>` for a
/// control plane, `fleetctl.<kind>.<name>` for others.
///
/// Control planes have the short form because it is the documented one.
pub fn record_name(kind: &str, name: &str) -> String {
    if kind == CONTROL_PLANE { format!("fleetctl.{name}") } else { format!("fleetctl.{kind}.{name}") }
}

/// The id of the ApplySet of an installation.
pub fn applyset_id(kind: &str, name: &str, namespace: &str) -> String {
    let digest = Sha256::digest(format!("{}.{namespace}.Secret.", record_name(kind, name)));
    format!("applyset-{}-v1", URL_SAFE_NO_PAD.encode(digest))
}

/// The labels of every object of an installation; the first two are on its pods and volume claims as well.
pub fn installation_labels(kind: &str, name: &str, namespace: &str) -> [(&'static str, String); 4] {
    [
        (LABEL_INSTALL, name.to_owned()),
        (LABEL_INSTALL_KIND, kind.to_owned()),
        (MANAGED_BY_LABEL, TOOL.to_owned()),
        (PART_OF_LABEL, applyset_id(kind, name, namespace)),
    ]
}
