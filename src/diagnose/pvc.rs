//! Reasons why a PersistentVolumeClaim is not bound: no StorageClass, no such class, no provisioner.

use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::diagnosis::{CauseId, Link};
use super::evidence::{DEADLINE_EXCEEDED, Evidence, Finding, event_message, event_second, events_of, has_reason};
use super::pod_facts::{pvc_names, unschedulable_message};
use super::typed::Typed as _;
use crate::api::labels::{ANNOTATION_DEFAULT_CLASS, DEFAULT_CLASS_ANNOTATIONS};
use crate::api::shell::foreign_word;
use crate::k8s::object::ObjectRef;

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
/// Annotation that named the class of a PVC before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
/// Texts of the scheduler about nodes without a volume that a PVC could get.
const NO_VOLUME: [&str; 3] = [
    "didn't find available persistent volumes",
    "volume node affinity conflict",
    "didn't match PersistentVolume's node affinity",
];
/// Text of a provisioner while the storage driver starts on a node that has just joined.
const NO_TOPOLOGY: &str = "no topology key found on CSINode";

pub(crate) fn is_bound(pvc: &PersistentVolumeClaim) -> bool {
    pvc.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

pub(crate) fn find_pvc_cause(pvc: &PersistentVolumeClaim, evidence: &Evidence) -> Option<Finding> {
    if is_bound(pvc) {
        return None;
    }
    let reference = pvc.object_ref()?;
    let spec = pvc.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let named = spec.or_else(|| pvc.annotation(CLASS_ANNOTATION));
    let tries = Tries::from_pvc(pvc, evidence);
    let Some(classes) = evidence.storage_classes.as_deref() else {
        // Without the classes the events are the only evidence.
        return tries.find_refusal(|message| {
            Finding::new(
                CauseId::ProvisioningFailed,
                pvc_link(&reference, format!("Pending: {message}")),
                "fix the error that the provisioner reports",
            )
        });
    };
    let Some(name) = named else { return Some(without_class(&reference, classes)) };
    let class = classes.iter().find(|class| class.name() == Some(name));
    if class.is_none() && !name.is_empty() {
        return Some(missing_class(name, classes).prepend_link(pvc_link(&reference, "Pending")));
    }
    let provisioner = class.map(|class| class.provisioner.as_str()).filter(|provisioner| !provisioner.is_empty());
    let provisioner = provisioner.unwrap_or(NO_PROVISIONER);
    // Such a volume is chosen together with the node, so only the scheduler knows whether one fits.
    let with_node = class.and_then(|c| c.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer");
    if with_node && provisioner == NO_PROVISIONER && refused_for_another_reason(pvc, evidence) {
        return None;
    }
    find_unprovisioned(pvc, evidence, &tries, name, provisioner)
        .map(|finding| finding.prepend_link(pvc_link(&reference, "Pending")))
}

fn pvc_link(reference: &ObjectRef, state: impl Into<String>) -> Link {
    Link { object: reference.clone(), state: state.into() }
}

/// The finding for a PVC that names no class.
fn without_class(reference: &ObjectRef, classes: &[StorageClass]) -> Finding {
    let Some(default) = classes.iter().find(|class| is_default(class)) else {
        return Finding::new(
            CauseId::NoDefaultStorageClass,
            class_link("", &no_default(classes)),
            make_default_remedy(classes),
        )
        .prepend_link(pvc_link(reference, "Pending, it has no StorageClass"));
    };
    let default = default.name().unwrap_or_default();
    Finding::new(
        CauseId::ClaimWithoutClass,
        pvc_link(
            reference,
            format!("Pending without a StorageClass: it was created before `{default}` became the default"),
        ),
        "uninstall and install again: a PersistentVolumeClaim without data is recreated, and gets the default class",
    )
}

/// The finding for a PVC that names a class that does not exist.
fn missing_class(name: &str, classes: &[StorageClass]) -> Finding {
    let known = class_names(classes);
    let known = if known.is_empty() {
        "the cluster has none".to_owned()
    } else {
        format!("the cluster has {}", known.join(", "))
    };
    Finding::new(
        CauseId::StorageClassMissing,
        class_link(name, &format!("does not exist; {known}")),
        format!("create the StorageClass `{name}`, or set an existing one in the values"),
    )
}

/// The events of a provisioner about a PVC: it writes one when it begins a try, and one for how that ended.
struct Tries<'a> {
    /// The message of the latest refusal.
    refused: Option<&'a str>,
    /// True when a try has begun since.
    at_work: bool,
}

impl<'a> Tries<'a> {
    fn from_pvc(pvc: &PersistentVolumeClaim, evidence: &'a Evidence) -> Self {
        let refused = find_pvc_event(pvc, &["ProvisioningFailed"], evidence);
        let begun = find_pvc_event(pvc, &["Provisioning", "ProvisioningSucceeded"], evidence);
        // The next try comes a second later at least, so within one second the refusal is the later one.
        let at_work = match (begun, refused) {
            (Some(begun), Some(refused)) => event_second(begun) > event_second(refused),
            (begun, _) => begun.is_some(),
        };
        Self { refused: refused.map(event_message), at_work }
    }

    /// The finding of a refusal, if there is one. It ends no wait while a try continues that may succeed, nor when it
    /// only says that the volume takes longer than the try, or that a node has just joined.
    fn find_refusal(&self, finding: impl FnOnce(&str) -> Finding) -> Option<Finding> {
        let message = self.refused?;
        let passes = DEADLINE_EXCEEDED.iter().chain(&[NO_TOPOLOGY]).any(|words| message.contains(words));
        let finding = finding(message);
        Some(if self.at_work || passes { finding.into_transient() } else { finding })
    }
}

fn find_unprovisioned(
    pvc: &PersistentVolumeClaim,
    evidence: &Evidence,
    tries: &Tries<'_>,
    class: &str,
    provisioner: &str,
) -> Option<Finding> {
    let refused = tries.find_refusal(|message| {
        Finding::new(
            CauseId::ProvisioningFailed,
            class_link(class, &format!("its provisioner `{provisioner}` reports an error: {message}")),
            "fix the error that the provisioner reports, or set another StorageClass in the values",
        )
    });
    // The first try may take as long as the storage needs.
    if refused.is_some() || tries.at_work {
        return refused;
    }
    if provisioner == NO_PROVISIONER {
        let waits = find_pvc_event(pvc, &["WaitForFirstConsumer"], evidence).is_some();
        let state = if waits { "it has no provisioner, and no existing volume fits" } else { "it has no provisioner" };
        return Some(Finding::new(
            CauseId::NoProvisioner,
            class_link(class, state),
            "create a PersistentVolume that fits, or set a StorageClass with a provisioner in the values",
        ));
    }
    // The controller waits for a provisioner outside of it. It reports so at once, also when one is about to begin: the
    // evidence only counts when it lasts.
    find_pvc_event(pvc, &["ExternalProvisioning"], evidence).map(|_| {
        Finding::new(
            CauseId::NoProvisioner,
            class_link(class, &format!("its provisioner `{provisioner}` does not answer")),
            format!("check that the pods of the provisioner `{provisioner}` run"),
        )
    })
}

/// The newest event about a PVC with one of these reasons.
fn find_pvc_event<'e>(pvc: &PersistentVolumeClaim, reasons: &[&str], evidence: &'e Evidence) -> Option<&'e Event> {
    events_of(pvc.event_subject(), evidence).find(|event| has_reason(event, reasons))
}

/// Returns whether a pod with this PVC is refused by the scheduler, and not for want of a volume.
fn refused_for_another_reason(pvc: &PersistentVolumeClaim, evidence: &Evidence) -> bool {
    evidence
        .pods
        .iter()
        .filter(|pod| pod.namespace() == pvc.namespace() && pvc_names(pod).any(|name| Some(name) == pvc.name()))
        .filter_map(unschedulable_message)
        .any(|message| !NO_VOLUME.iter().any(|words| message.contains(words)))
}

fn is_default(class: &StorageClass) -> bool {
    DEFAULT_CLASS_ANNOTATIONS.iter().any(|key| class.annotation(key) == Some("true"))
}

fn class_names(classes: &[StorageClass]) -> Vec<&str> {
    classes.iter().filter_map(|class| class.name()).collect()
}

fn class_link(name: &str, state: &str) -> Link {
    let object = ObjectRef {
        group: "storage.k8s.io".to_owned(),
        kind: "StorageClass".to_owned(),
        namespace: None,
        name: name.to_owned(),
    };
    Link { object, state: state.to_owned() }
}

fn no_default(classes: &[StorageClass]) -> String {
    let names = class_names(classes);
    if names.is_empty() {
        "the cluster has none".to_owned()
    } else {
        format!("none of {} is the default", names.join(", "))
    }
}

fn make_default_remedy(classes: &[StorageClass]) -> String {
    classes.first().and_then(|class| class.name()).map_or_else(
        || "install a storage provisioner with a default StorageClass, uninstall, and install again".to_owned(),
        |name| {
            let name = foreign_word(name);
            format!(
                "make one the default: `kubectl annotate storageclass {name} {ANNOTATION_DEFAULT_CLASS}=true`, uninstall, and install again; or set a class in the values"
            )
        },
    )
}
