//! Causes at PVCs, volumes and mounts.

use super::*;

#[test]
fn no_default_storage_class_chain() {
    let (cause, chain) = found(&stateful_set(), &with_pvc(pvc(None), vec![], vec![]));
    assert_eq!(cause, CauseId::NoDefaultStorageClass);
    assert_eq!(
        chain,
        "StatefulSet fleet/etcd: 0 of 1 pods ready → Pod fleet/etcd-0: Pending, its volume does not exist → \
         PersistentVolumeClaim fleet/data-etcd-0: Pending, it has no StorageClass → StorageClass: the cluster has none"
    );
    let (cause, chain) = found(&stateful_set(), &with_pvc(pvc(None), vec![class("slow", "p", false)], vec![]));
    assert_eq!(cause, CauseId::NoDefaultStorageClass);
    assert!(chain.ends_with("none of slow is the default"), "{chain}");
}

#[test]
fn causes_of_unbound_pvcs() {
    let cases = [
        (
            pvc(Some("fast")),
            vec![class("slow", "p", true)],
            vec![],
            CauseId::StorageClassMissing,
            "StorageClass fast: does not exist; the cluster has slow",
        ),
        (
            pvc(None),
            vec![class("slow", "p", true)],
            vec![],
            CauseId::ClaimWithoutClass,
            "before `slow` became the default",
        ),
        (
            pvc(Some("local")),
            vec![class("local", "kubernetes.io/no-provisioner", true)],
            vec![],
            CauseId::NoProvisioner,
            "it has no provisioner",
        ),
        (
            pvc(Some("csi")),
            vec![class("csi", "x.csi", true)],
            vec![event("c", "ExternalProvisioning", "waiting")],
            CauseId::NoProvisioner,
            "`x.csi` does not answer",
        ),
        (
            pvc(Some("csi")),
            vec![class("csi", "x.csi", true)],
            vec![event("c", "ProvisioningFailed", "no space")],
            CauseId::ProvisioningFailed,
            "no space",
        ),
    ];
    for (pvc, classes, events, expected, part) in cases {
        let (cause, chain) = found(&stateful_set(), &with_pvc(pvc, classes, events));
        assert_eq!(cause, expected, "{chain}");
        assert!(chain.contains(part), "{part} in {chain}");
    }
    let fine = with_pvc(pvc(Some("csi")), vec![class("csi", "x.csi", true)], vec![]);
    assert!(
        diagnose_object(&stateful_set(), &evaluate_status(&stateful_set(), None), &fine).is_none(),
        "a claim may take its time"
    );
}

/// The evidence of a local volume whose pod has these conditions.
fn local_volume(mode: &str, conditions: Value) -> Evidence {
    let mut local = class("local", "kubernetes.io/no-provisioner", true);
    local.volume_binding_mode = Some(mode.to_owned());
    let waits = event("c", "WaitForFirstConsumer", "waiting for first consumer to be created before binding");
    let mut evidence = with_pvc(pvc(Some("local")), vec![local], vec![waits]);
    evidence.pods[0].status.as_mut().unwrap().conditions = Some(typed_object(conditions));
    evidence
}

fn refused_local_volume(mode: &str, why: &str) -> Evidence {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why});
    local_volume(mode, json!([condition]))
}

#[test]
fn local_volume_by_the_scheduler() {
    for (why, expected) in [
        ("0/1 nodes are available: 1 Insufficient cpu.", CauseId::Unschedulable),
        ("0/1 nodes are available: 1 node(s) had untolerated taint {gpu: true}.", CauseId::Unschedulable),
        (
            "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind.",
            CauseId::NoProvisioner,
        ),
        ("0/1 nodes are available: 1 node(s) had volume node affinity conflict.", CauseId::NoProvisioner),
        ("0/1 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity.", CauseId::NoProvisioner),
        (
            "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't find available persistent volumes to bind.",
            CauseId::NoProvisioner,
        ),
    ] {
        let evidence = refused_local_volume("WaitForFirstConsumer", why);
        assert_eq!(found(&stateful_set(), &evidence).0, expected, "{why}");
        // A PVC is waited for by itself too.
        let pvc = serde_json::to_value(&evidence.pvcs[0]).unwrap();
        let of_pvc = diagnose_object(&pvc, &evaluate_status(&pvc, None), &evidence);
        let expected = Some(expected).filter(|cause| *cause == CauseId::NoProvisioner);
        assert_eq!(of_pvc.map(|found| found.cause), expected, "{why}");
    }
    let at_once = refused_local_volume(
        "Immediate",
        "0/1 nodes are available: 1 pod has unbound immediate PersistentVolumeClaims.",
    );
    assert_eq!(found(&stateful_set(), &at_once).0, CauseId::NoProvisioner);
    let unseen = local_volume("WaitForFirstConsumer", json!([]));
    assert_eq!(found(&stateful_set(), &unseen).0, CauseId::NoProvisioner, "the scheduler has not said anything");
}

#[test]
fn provisioner_tries_and_refusals() {
    let waits = (9, "ExternalProvisioning", "Waiting for a volume to be created");
    let [first, third, fourth] = [1, 3, 4]
        .map(|second| (second, "Provisioning", "External provisioner is provisioning volume for claim \"fleet/data\""));
    let [fails_third, fails_fifth] = [3, 5].map(|second| (second, "ProvisioningFailed", "no space"));
    let takes_long = (5, "ProvisioningFailed", "rpc error: code = DeadlineExceeded desc = context deadline exceeded");
    let message = "failed to provision volume with StorageClass \"csi\": error generating accessibility requirements: no topology key found on CSINode node-1";
    let joins = (5, "ProvisioningFailed", message);
    let made = (7, "ProvisioningSucceeded", "Successfully provisioned volume pvc-1");
    let (unanswered, refused) = (CauseId::NoProvisioner, CauseId::ProvisioningFailed);
    let cases = [
        ("nobody answers", vec![waits], Some((unanswered, unanswered.default_grace()))),
        ("the first try", vec![waits, first], None),
        ("made at the first try", vec![waits, first, made], None),
        ("refused", vec![waits, first, fails_third], Some((refused, refused.default_grace()))),
        ("refused at once", vec![waits, third, fails_third], Some((refused, refused.default_grace()))),
        ("a second try", vec![waits, fails_third, fourth], Some((refused, None))),
        ("the second was refused as well", vec![waits, fourth, fails_fifth], Some((refused, refused.default_grace()))),
        ("it only takes longer", vec![waits, first, takes_long], Some((refused, None))),
        ("a node has just joined", vec![waits, first, joins], Some((refused, None))),
    ];
    for (name, events, expected) in cases {
        let events = events
            .into_iter()
            .map(|(second, reason, text)| at(&format!("2026-01-01T00:00:0{second}Z"), event("c", reason, text)))
            .collect();
        let mut evidence = with_pvc(pvc(Some("csi")), vec![class("csi", "x.csi", true)], events);
        assert_eq!(cause_and_grace(&evidence), expected, "{name}");
        // The events are enough when the classes may not be read.
        evidence.storage_classes = None;
        assert_eq!(cause_and_grace(&evidence), expected.filter(|(cause, _)| *cause == refused), "{name}");
    }
}

#[test]
fn transient_mount_failures() {
    let pending = json!({"phase": "Pending"});
    let missing = event("p", "FailedMount", "MountVolume.SetUp failed for volume \"pki\" : secret \"pki\" not found");
    let lasting = with_pod(pending.clone(), vec![missing.clone()]);
    assert_eq!(grace(&stateful_set(), &lasting), CauseId::MountFailed.default_grace());
    for (reason, message) in [
        ("FailedAttachVolume", "Multi-Attach error for volume \"pv-a\" Volume is already used by pod(s) etcd-0"),
        (
            "FailedMount",
            "MountVolume.MountDevice failed for volume \"pv-a\" : driver name x.csi not found in the list of registered CSI drivers",
        ),
        (
            "FailedMount",
            "Unable to attach or mount volumes: unmounted volumes=[data]: timed out waiting for the condition",
        ),
        ("FailedCreatePodSandBox", "plugin type=\"calico\" failed (add): no such file or directory"),
        (
            "FailedAttachVolume",
            "AttachVolume.Attach failed for volume \"pv-a\" : CSINode node-1 does not contain driver x.csi",
        ),
        (
            "FailedAttachVolume",
            "AttachVolume.Attach failed for volume \"pv-a\" : timed out waiting for external-attacher of x.csi CSI driver to attach volume v",
        ),
        (
            "FailedAttachVolume",
            "AttachVolume.Attach failed for volume \"pv-a\" : rpc error: code = DeadlineExceeded desc = context deadline exceeded",
        ),
        (
            "FailedMount",
            "MountVolume.WaitForAttach failed for volume \"pv-a\" : volume v has GET error for volume attachment a: context deadline exceeded",
        ),
        ("FailedMount", "MountVolume.WaitForAttach failed for volume \"pv-a\" : attachdetachment timeout for volume v"),
        ("FailedAttachVolume", "AttachVolume.Attach failed for volume \"pv-a\" : timeout waiting for attach"),
    ] {
        let heals = at("2026-01-01T00:00:09Z", event("p", reason, message));
        let evidence = with_pod(pending.clone(), vec![heals.clone()]);
        assert_eq!(found(&stateful_set(), &evidence).0, CauseId::MountFailed, "{message}");
        assert_eq!(grace(&stateful_set(), &evidence), None, "{message}");
        // The lasting failure is found, however often the transient one is repeated after it.
        let evidence = with_pod(pending.clone(), vec![heals, missing.clone()]);
        assert_eq!(grace(&stateful_set(), &evidence), CauseId::MountFailed.default_grace(), "{message}");
        assert!(found(&stateful_set(), &evidence).1.contains("secret \"pki\" not found"), "{message}");
    }
}

fn later_event(reason: &str, message: &str) -> Event {
    at("2026-01-01T00:00:08Z", event("p", reason, message))
}

/// The cause of a pending pod with these events.
fn mount_cause(events: &[Event]) -> Option<CauseId> {
    cause_and_grace(&with_pod(json!({"phase": "Pending"}), events.to_vec())).map(|(cause, _)| cause)
}

#[test]
fn mount_failure_ends_with_progress() {
    let unattached = event("p", "FailedAttachVolume", "AttachVolume.Attach failed for volume \"pv-a\" : timed out");
    let unmounted = event("p", "FailedMount", "Unable to attach or mount volumes: unmounted volumes=[data]");
    let no_network = event("p", "FailedCreatePodSandBox", "plugin type=\"bridge\" failed (add)");
    let [attached, attached_other] = ["pv-a", "pv-b"].map(|name| {
        later_event("SuccessfulAttachVolume", &format!("AttachVolume.Attach succeeded for volume \"{name}\" "))
    });
    for failure in [&unattached, &unmounted, &no_network] {
        for reason in ["Pulling", "Pulled", "Created", "Started"] {
            assert_eq!(mount_cause(&[failure.clone(), later_event(reason, "")]), None, "{failure:?} {reason}");
            assert_eq!(mount_cause(&[failure.clone(), event("p", reason, "")]), None, "in the same second");
            let again = at("2026-01-01T00:00:09Z", failure.clone());
            assert_eq!(
                mount_cause(&[again, later_event(reason, "")]),
                Some(CauseId::MountFailed),
                "{failure:?} {reason}"
            );
        }
        assert_eq!(
            mount_cause(&[failure.clone(), later_event("Scheduled", "")]),
            Some(CauseId::MountFailed),
            "{failure:?}"
        );
    }
    assert_eq!(mount_cause(&[unattached.clone(), attached.clone()]), None);
    assert_eq!(mount_cause(&[unmounted, attached.clone()]), None);
    // Another volume, and a failure that no volume resolves.
    assert_eq!(mount_cause(&[unattached.clone(), attached_other]), Some(CauseId::MountFailed));
    assert_eq!(mount_cause(&[no_network, attached.clone()]), Some(CauseId::MountFailed));
    // Another failure that lasts is found beside one that is over.
    let missing = event("p", "FailedMount", "MountVolume.SetUp failed for volume \"pki\" : secret \"pki\" not found");
    assert_eq!(mount_cause(&[unattached, attached, missing]), Some(CauseId::MountFailed));
}
