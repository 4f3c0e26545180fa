//! The failure of a wait: the chain from the object to the root cause, and the remedy.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::api::remedy::Remedy;
use crate::api::util::text::{visible_cell, visible_lines, visible_list};
use crate::k8s::object::ObjectRef;

/// The root cause. The ids are stable: tests, documentation and programs name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CauseId {
    /// A PVC names no class and the cluster has no default one.
    NoDefaultStorageClass,
    /// A PVC was created before there was a default class, and did not get it later.
    ClaimWithoutClass,
    /// A PVC names a class that does not exist.
    StorageClassMissing,
    /// The class has no provisioner at work and there is no volume that fits.
    NoProvisioner,
    /// The provisioner refused.
    ProvisioningFailed,
    /// The registry does not know the image, or its name is malformed.
    ImageNotFound,
    /// The registry has the image for other architectures than the node's.
    ImageArchitecture,
    /// The registry wants other credentials.
    ImagePullDenied,
    /// The image could not be pulled for another reason, such as the network.
    ImagePullFailed,
    /// A container keeps ending.
    CrashLoop,
    /// A container used more memory than its limit.
    OutOfMemory,
    /// A container cannot resolve the name of a dependency.
    NameLookupFailed,
    /// A container is shown a certificate, or shows one, whose authority is not known on the other side.
    CertificateUntrusted,
    /// A container is shown a certificate, or shows one, that has ended or has not begun.
    CertificateExpired,
    /// A component runs, and says itself what it fails in.
    ComponentFailing,
    /// An API server does not start, because the objects in etcd are stored by a Kubernetes minor that it may not follow.
    VersionGuard,
    /// A container cannot be created: a Secret or ConfigMap or key is missing, or its configuration is refused.
    ContainerConfig,
    /// A volume cannot be mounted.
    MountFailed,
    /// A quota is used up.
    QuotaExceeded,
    /// Pod Security refuses the pods.
    PodSecurity,
    /// The server or a webhook refuses the pods.
    PodsRefused,
    /// No node takes the pod.
    Unschedulable,
    /// No load balancer answers for the Service.
    LoadBalancerUnanswered,
    /// The cloud's load balancer refused.
    LoadBalancerFailed,
    /// A Job has failed.
    JobFailed,
    /// The object's own controller gave up.
    ControllerGaveUp,
    /// A probe fails.
    ProbeFailing,
    /// The object was deleted during the wait.
    Deleted,
    /// No cause is known; it only takes long.
    Slow,
}

/// Waiting reason of a container whose image has a malformed name.
pub(crate) const INVALID_IMAGE_NAME: &str = "InvalidImageName";
/// Waiting reason of a container whose Secrets, ConfigMaps or their keys are missing.
pub(crate) const CONFIG_ERROR: &str = "CreateContainerConfigError";

/// The latest try of a node, as the reason reports it for which a container waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// It has failed just now.
    Failed,
    /// It failed before, and the next one is put off.
    BackingOff,
    /// A retry gives no new result, as for a malformed image name.
    Conclusive,
}

impl CauseId {
    /// All of them, in the order of their definition.
    pub const ALL: [Self; 29] = [
        Self::NoDefaultStorageClass,
        Self::ClaimWithoutClass,
        Self::StorageClassMissing,
        Self::NoProvisioner,
        Self::ProvisioningFailed,
        Self::ImageNotFound,
        Self::ImageArchitecture,
        Self::ImagePullDenied,
        Self::ImagePullFailed,
        Self::CrashLoop,
        Self::OutOfMemory,
        Self::NameLookupFailed,
        Self::CertificateUntrusted,
        Self::CertificateExpired,
        Self::ComponentFailing,
        Self::VersionGuard,
        Self::ContainerConfig,
        Self::MountFailed,
        Self::QuotaExceeded,
        Self::PodSecurity,
        Self::PodsRefused,
        Self::Unschedulable,
        Self::LoadBalancerUnanswered,
        Self::LoadBalancerFailed,
        Self::JobFailed,
        Self::ControllerGaveUp,
        Self::ProbeFailing,
        Self::Deleted,
        Self::Slow,
    ];

    /// The id, such as `no-default-storage-class`.
    pub fn id(self) -> String {
        serde_json::to_value(self).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The reasons for which containers wait where this is the cause. Some of [`Self::ContainerConfig`] and
    /// [`Self::CrashLoop`] turn out to be [`Self::OutOfMemory`].
    pub(crate) fn waiting_reasons(self) -> &'static [(&'static str, Attempt)] {
        match self {
            Self::ImageNotFound | Self::ImageArchitecture | Self::ImagePullDenied | Self::ImagePullFailed => &[
                ("ErrImagePull", Attempt::Failed),
                ("ImagePullBackOff", Attempt::BackingOff),
                ("RegistryUnavailable", Attempt::BackingOff),
                (INVALID_IMAGE_NAME, Attempt::Conclusive),
                ("ErrImageNeverPull", Attempt::Conclusive),
            ],
            Self::ContainerConfig => &[
                (CONFIG_ERROR, Attempt::Failed),
                ("CreateContainerError", Attempt::Failed),
                ("RunContainerError", Attempt::Failed),
            ],
            Self::CrashLoop => &[("CrashLoopBackOff", Attempt::BackingOff)],
            _ => &[],
        }
    }

    /// The attempt that a waiting reason of this cause reports; none for a reason of another cause.
    pub(crate) fn find_attempt(self, reason: &str) -> Option<Attempt> {
        self.waiting_reasons().iter().find(|(known, _)| *known == reason).map(|(_, attempt)| *attempt)
    }

    /// Returns whether the cause is read from the log of a container.
    pub(crate) fn is_from_log(self) -> bool {
        matches!(
            self,
            Self::NameLookupFailed
                | Self::CertificateUntrusted
                | Self::CertificateExpired
                | Self::ComponentFailing
                | Self::VersionGuard
        )
    }

    /// The grace before early failure: the time that the evidence must last before it ends a wait, unless the case
    /// differs. None for causes that may be transient.
    pub fn default_grace(self) -> Option<Duration> {
        let seconds = match self {
            Self::JobFailed | Self::ControllerGaveUp => 0,
            Self::CrashLoop | Self::OutOfMemory => 2,
            Self::NoDefaultStorageClass | Self::StorageClassMissing | Self::PodSecurity => 5,
            Self::ImageNotFound
            | Self::ImageArchitecture
            | Self::ImagePullDenied
            | Self::QuotaExceeded
            | Self::Deleted
            | Self::NameLookupFailed
            | Self::CertificateUntrusted
            | Self::CertificateExpired
            | Self::VersionGuard => 8,
            Self::ClaimWithoutClass | Self::PodsRefused | Self::ContainerConfig => 15,
            Self::NoProvisioner | Self::ProvisioningFailed | Self::Unschedulable | Self::MountFailed => 20,
            Self::ImagePullFailed | Self::LoadBalancerUnanswered => 25,
            Self::LoadBalancerFailed | Self::ComponentFailing | Self::ProbeFailing | Self::Slow => return None,
        };
        Some(Duration::from_secs(seconds))
    }
}

impl fmt::Display for CauseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id())
    }
}

/// One object on the way to the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Link {
    /// The object; the last link may name a kind of which there is none.
    pub object: ObjectRef,
    /// The state that keeps it from being ready.
    pub state: String,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = visible_list(&self.state);
        if self.object.name.is_empty() {
            write!(f, "{}: {state}", visible_cell(&self.object.kind))
        } else {
            write!(f, "{}: {state}", self.object)
        }
    }
}

/// The chain from a waiting object to the root cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// The root cause.
    pub cause: CauseId,
    /// From the waiting object to the cause.
    pub chain: Vec<Link>,
    /// The remedy.
    pub remedy: Remedy,
    /// The last lines of the log of the container at fault, the oldest first.
    pub logs: Vec<String>,
    /// The grace before early failure: that of the cause, or none where this case of it may be transient.
    pub grace: Option<Duration>,
}

impl Diagnosis {
    /// The diagnosis, escaped for output: its states and logs are texts of servers, controllers and containers.
    pub(crate) fn escape_for_output(mut self) -> Self {
        for link in &mut self.chain {
            link.state = visible_list(&link.state).into_owned();
        }
        for line in &mut self.logs {
            *line = visible_lines(line).into_owned();
        }
        Self { remedy: self.remedy.with_visible_text(), ..self }
    }
}

impl fmt::Display for Diagnosis {
    /// One line: the chain. Remedy and logs are printed apart.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, link) in self.chain.iter().enumerate() {
            if index > 0 {
                f.write_str(" → ")?;
            }
            write!(f, "{link}")?;
        }
        Ok(())
    }
}

/// A wait that ended without success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitFailure {
    /// True after a time-out; false after an early failure, when waiting longer would not help.
    pub timed_out: bool,
    /// The duration of the wait.
    pub waited: Duration,
    /// The targets that were not current, each with its state, in the order of the caller.
    pub pending: Vec<Link>,
    /// The first of them whose cause is known, and the causes of the rest when they differ.
    pub diagnoses: Vec<Diagnosis>,
}

impl std::error::Error for WaitFailure {}

impl fmt::Display for WaitFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited.as_secs();
        if self.timed_out {
            write!(f, "timed out waiting for the condition after {seconds} s: ")?;
        } else {
            write!(f, "gave up after {seconds} s because waiting longer would not help: ")?;
        }
        if let Some(diagnosis) = self.diagnoses.first().filter(|diagnosis| diagnosis.cause != CauseId::Slow) {
            return write!(f, "{diagnosis}");
        }
        // Without a root cause all pending targets are listed.
        let all: Vec<String> = self.pending.iter().map(|link| self.describe_pending(link)).collect();
        f.write_str(&all.join("; "))
    }
}

impl WaitFailure {
    /// A pending target with the cause that is known of it, else with its state.
    fn describe_pending(&self, pending: &Link) -> String {
        let known = self
            .diagnoses
            .iter()
            .find(|diagnosis| diagnosis.chain.first().is_some_and(|link| link.object == pending.object));
        known.map_or_else(|| pending.to_string(), ToString::to_string)
    }

    /// The stable reason for programs.
    pub fn reason(&self) -> &'static str {
        if self.timed_out { "TimedOut" } else { "CannotBecomeReady" }
    }

    /// The root cause, as far as there is evidence.
    pub fn root_cause(&self) -> Option<CauseId> {
        let slow = self.timed_out.then_some(CauseId::Slow);
        self.diagnoses.first().map(|diagnosis| diagnosis.cause).or(slow)
    }

    /// The remedy of the first diagnosis.
    pub fn remedy(&self) -> Option<Remedy> {
        self.diagnoses.first().map(|diagnosis| diagnosis.remedy.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet_link(kind: &str, name: &str, state: &str) -> Link {
        Link {
            object: ObjectRef {
                group: String::new(),
                kind: kind.into(),
                namespace: (!name.is_empty()).then(|| "fleet".into()),
                name: name.into(),
            },
            state: state.into(),
        }
    }

    #[test]
    fn time_out_text_with_the_chain() {
        let failure = WaitFailure {
            timed_out: true,
            waited: Duration::from_secs(60),
            pending: vec![],
            diagnoses: vec![Diagnosis {
                cause: CauseId::NoDefaultStorageClass,
                chain: vec![
                    fleet_link("StatefulSet", "etcd", "0 of 1 pods ready"),
                    fleet_link("Pod", "etcd-0", "Pending"),
                    fleet_link("StorageClass", "", "there is none"),
                ],
                remedy: "r".into(),
                logs: vec![],
                grace: None,
            }],
        };
        assert_eq!(
            failure.to_string(),
            "timed out waiting for the condition after 60 s: StatefulSet fleet/etcd: 0 of 1 pods ready → Pod fleet/etcd-0: Pending → StorageClass: there is none"
        );
        assert_eq!(failure.root_cause().unwrap().id(), "no-default-storage-class");

        let mut slow = failure;
        slow.diagnoses[0].cause = CauseId::Slow;
        slow.diagnoses[0].chain.truncate(2);
        slow.pending = vec![slow.diagnoses[0].chain[0].clone(), fleet_link("Deployment", "api", "0 of 1 pods ready")];
        assert_eq!(
            slow.to_string(),
            "timed out waiting for the condition after 60 s: StatefulSet fleet/etcd: 0 of 1 pods ready → Pod fleet/etcd-0: Pending; Deployment fleet/api: 0 of 1 pods ready"
        );
    }
}
