//! Why a volume claim is not bound: no class, no such class, nobody who provisions.

use jiff::Timestamp;
use serde_json::Value;

use super::diagnosis::{CauseId, Link};
use super::evidence::{Evidence, Finding, TAKES_LONG, event_time, events_of};
use super::pod::refused;
use crate::api::shell::foreign_word;
use crate::k8s::object::{ObjectRef, annotation, list, text};

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const DEFAULT_CLASS_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";
/// What the scheduler says of nodes where no volume is that a claim could get.
const NO_VOLUME: [&str; 3] = [
    "didn't find available persistent volumes",
    "volume node affinity conflict",
    "didn't match PersistentVolume's node affinity",
];
/// What a provisioner says while the driver of storage starts on a node that has just joined.
const NO_TOPOLOGY: &str = "no topology key found on CSINode";

pub(crate) fn find(claim: &Value, evidence: &Evidence) -> Option<Finding> {
    if text(claim, "/status/phase") == Some("Bound") {
        return None;
    }
    let reference = ObjectRef::of(claim)?;
    let own = |state: String| Link { object: reference.clone(), state };
    let named =
        text(claim, "/spec/storageClassName").or_else(|| annotation(claim, "volume.beta.kubernetes.io/storage-class"));
    let classes = evidence.classes.as_deref();
    let tries = Tries::of(claim, evidence);
    match (named, classes) {
        (None, Some(classes)) if !classes.iter().any(is_default) => Some(
            Finding::new(CauseId::NoDefaultStorageClass, class_link("", &no_default(classes)), remedy(classes))
                .below(own("Pending, it names no StorageClass".to_owned())),
        ),
        (None, Some(classes)) => {
            let default = classes
                .iter()
                .find(|class| is_default(class))
                .and_then(|c| text(c, "/metadata/name"))
                .unwrap_or_default();
            Some(Finding::new(
                CauseId::ClaimWithoutClass,
                own(format!("Pending without a StorageClass: it was made before `{default}` became the default one")),
                "uninstall and install again: a claim without data is made anew, and gets the default class",
            ))
        }
        (Some(name), Some(classes))
            if !name.is_empty() && !classes.iter().any(|class| text(class, "/metadata/name") == Some(name)) =>
        {
            let known: Vec<&str> = classes.iter().filter_map(|class| text(class, "/metadata/name")).collect();
            let known =
                if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
            Some(
                Finding::new(
                    CauseId::StorageClassMissing,
                    class_link(name, &format!("does not exist; {known}")),
                    format!("make the StorageClass `{name}`, or name one that exists in the values"),
                )
                .below(own("Pending".to_owned())),
            )
        }
        (Some(name), Some(classes)) => {
            let class = classes.iter().find(|class| text(class, "/metadata/name") == Some(name));
            let provisioner = class.and_then(|class| text(class, "/provisioner")).unwrap_or(NO_PROVISIONER);
            // Such a volume is chosen together with the node, so only the scheduler knows whether one fits.
            let with_node = class.and_then(|class| text(class, "/volumeBindingMode")) == Some("WaitForFirstConsumer");
            if with_node && provisioner == NO_PROVISIONER && refused_for_another_reason(claim, evidence) {
                return None;
            }
            unprovisioned(claim, evidence, &tries, name, provisioner)
                .map(|finding| finding.below(own("Pending".to_owned())))
        }
        // Classes cannot be read: only events tell.
        (_, None) => tries.refused(|message| {
            Finding::new(
                CauseId::ProvisioningFailed,
                own(format!("Pending: {message}")),
                "put right what the provisioner says",
            )
        }),
    }
}

/// What a provisioner has said about a claim. It says when it begins a try, and how that ended.
struct Tries<'a> {
    /// The latest refusal.
    refused: Option<&'a str>,
    /// Whether a try has begun since.
    at_work: bool,
}

impl<'a> Tries<'a> {
    fn of(claim: &Value, evidence: &'a Evidence) -> Self {
        let newest = |reasons: &[&str]| {
            events_of(claim, evidence).find(|event| text(event, "/reason").is_some_and(|r| reasons.contains(&r)))
        };
        let refused = newest(&["ProvisioningFailed"]);
        let begun = newest(&["Provisioning", "ProvisioningSucceeded"]);
        // Most writers of events round to seconds. The next try comes a second later at least, so within one second the
        // refusal is the later word.
        let second = |event: &Value| event_time(event).map(Timestamp::as_second);
        let at_work = match (begun, refused) {
            (Some(begun), Some(refused)) => second(begun) > second(refused),
            (begun, _) => begun.is_some(),
        };
        Self { refused: refused.map(|event| text(event, "/message").unwrap_or_default()), at_work }
    }

    /// The finding of a refusal, if there is one. It ends no wait while a try goes on that may succeed, nor when it only
    /// says that the volume takes longer than the try, or that a node has just joined.
    fn refused(&self, finding: impl FnOnce(&str) -> Finding) -> Option<Finding> {
        let message = self.refused?;
        let passes = TAKES_LONG.iter().chain(&[NO_TOPOLOGY]).any(|words| message.contains(words));
        let finding = finding(message);
        Some(if self.at_work || passes { finding.healing() } else { finding })
    }
}

fn unprovisioned(
    claim: &Value,
    evidence: &Evidence,
    tries: &Tries<'_>,
    class: &str,
    provisioner: &str,
) -> Option<Finding> {
    let refused = tries.refused(|message| {
        Finding::new(
            CauseId::ProvisioningFailed,
            class_link(class, &format!("its provisioner `{provisioner}` refuses: {message}")),
            "put right what the provisioner says, or name another StorageClass in the values",
        )
    });
    // The first try may take as long as the storage needs.
    if refused.is_some() || tries.at_work {
        return refused;
    }
    if provisioner == NO_PROVISIONER {
        let waits = events_of(claim, evidence).any(|event| text(event, "/reason") == Some("WaitForFirstConsumer"));
        let state = if waits { "it makes no volumes, and none that exists fits" } else { "it makes no volumes" };
        return Some(Finding::new(
            CauseId::NoProvisioner,
            class_link(class, state),
            "make a PersistentVolume that fits, or name a StorageClass with a provisioner in the values",
        ));
    }
    // The controller waits for a provisioner outside of it. It says so at once, also when one is about to begin: the
    // evidence only counts when it lasts.
    events_of(claim, evidence).any(|event| text(event, "/reason") == Some("ExternalProvisioning")).then(|| {
        Finding::new(
            CauseId::NoProvisioner,
            class_link(class, &format!("its provisioner `{provisioner}` does not answer")),
            format!("check that the pods of the provisioner `{provisioner}` run"),
        )
    })
}

/// Whether a pod with this claim is refused by the scheduler, and not for want of a volume.
fn refused_for_another_reason(claim: &Value, evidence: &Evidence) -> bool {
    let [name, namespace] = ["/metadata/name", "/metadata/namespace"].map(|part| text(claim, part));
    let has_it = |pod: &&Value| {
        text(pod, "/metadata/namespace") == namespace
            && list(pod, "/spec/volumes").iter().any(|v| text(v, "/persistentVolumeClaim/claimName") == name)
    };
    let mut refusals = evidence.pods.iter().filter(has_it).filter_map(refused);
    refusals.any(|message| !NO_VOLUME.iter().any(|words| message.contains(words)))
}

fn is_default(class: &Value) -> bool {
    [DEFAULT_CLASS, DEFAULT_CLASS_BETA].iter().any(|key| annotation(class, key) == Some("true"))
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

fn no_default(classes: &[Value]) -> String {
    let names: Vec<&str> = classes.iter().filter_map(|class| text(class, "/metadata/name")).collect();
    if names.is_empty() {
        "the cluster has none".to_owned()
    } else {
        format!("none of {} is the default", names.join(", "))
    }
}

fn remedy(classes: &[Value]) -> String {
    classes.first().and_then(|class| text(class, "/metadata/name")).map_or_else(
        || "install a storage provisioner with a default StorageClass, uninstall, and install again".to_owned(),
        |name| {
            let name = foreign_word(name);
            format!(
                "make one the default: `kubectl annotate storageclass {name} {DEFAULT_CLASS}=true`, uninstall, and install again; or name a class in the values"
            )
        },
    )
}
