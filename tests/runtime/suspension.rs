//! What an operator takes away stays away: the rights of a cluster that is not accepted, and those of the chart's own
//! bindings.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use fleetctl::api::crd::condition::find_condition;
use fleetctl::api::labels::BOOTSTRAP_STATUS;
use fleetctl::api::util::digest;
use fleetctl::api::{Cluster, registration};
use fleetctl::k8s::connect::daemon_client;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use fleetctl::scheduler::leader::status;
use futures::FutureExt as _;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::config::{AuthInfo, Kubeconfig};
use kube::{Api, Client};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _};
use serde_json::json;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::identity::{change, read};
use crate::membership::Scene;
use crate::own_token;
use crate::support::{Program, Stage, wait};

const AT_ONCE: Duration = Duration::from_secs(5);

/// Bindings of the cluster `name` that exist.
async fn bindings(hub: &Client, name: &str) -> usize {
    let wide: Api<ClusterRoleBinding> = Api::all(hub.clone());
    let own: Api<RoleBinding> = Api::namespaced(hub.clone(), &format!("fleet-c-{name}"));
    let wide = wide.get_opt(&format!("fleet:agent:{name}")).await.unwrap();
    usize::from(wide.is_some()) + usize::from(own.get_opt("fleet-agent").await.unwrap().is_some())
}

#[tokio::test]
async fn a_cluster_that_is_not_accepted_has_no_rights_until_it_is_again() {
    let stage = Stage::hub().await;
    let mut control_plane = ControlPlane::start(&stage, "").await;
    let hub = stage.hub.client.clone();
    let applicant = Applicant::new(&fresh("suspended"));
    let member = applicant.join(&control_plane.init).await;
    let name = applicant.name.as_str();
    let leases: Api<Lease> = Api::namespaced(member.clone(), &format!("fleet-c-{name}"));
    leases.get("fleet-agent").await.unwrap();
    assert_eq!((read(&member, name).await, bindings(&hub, name).await), (200, 2));

    let [suspend, accept, revoke] = scripts("Revoke the rights of an agent").try_into().expect("three ways");
    let of_this = |script: String| script.replace("CLUSTER", name);
    follow(&stage, &stage.hub.kubeconfig, &of_this(suspend)).await;
    let took = wait("its rights are revoked", async || read(&member, name).await == 403).await;
    assert!(took < AT_ONCE, "{took:?}");
    wait("its bindings are gone", async || bindings(&hub, name).await == 0).await;
    assert!(matches!(leases.get("fleet-agent").await, Err(kube::Error::Api(status)) if status.code == 403));
    let requests: Api<CertificateSigningRequest> = Api::all(member.clone());
    let asked = requests.get("no-such").await;
    assert!(matches!(asked, Err(kube::Error::Api(status)) if status.code == 403), "it may ask for a certificate");

    // Neither a new leader nor a request by token brings them back.
    let config = format!("agentEndpoint: {}", stage.hub.url);
    let next = Program::scheduler(&stage.hub.kubeconfig, &config, "two");
    std::mem::replace(&mut control_plane.scheduler, next).kill();
    control_plane.scheduler.ready(Duration::from_secs(90)).await;
    let accepted = async {
        wait("the new leader has the request", async || {
            control_plane.scheduler.log().contains("an operator must accept the cluster")
        })
        .await;
        assert_eq!((read(&member, name).await, bindings(&hub, name).await), (403, 0));
        follow(&stage, &stage.hub.kubeconfig, &of_this(accept)).await;
        wait("its rights are back", async || read(&member, name).await == 200).await
    };
    let (answer, took) = tokio::join!(applicant.ask(&control_plane.init), accepted);
    assert!(took < AT_ONCE, "{took:?}");
    answer.expect("its key is on record");
    assert_eq!(bindings(&hub, name).await, 2);

    follow(&stage, &stage.hub.kubeconfig, &of_this(revoke)).await;
    let took = wait("its key is revoked", async || read(&member, name).await == 403).await;
    assert!(took < AT_ONCE, "{took:?}");
}

#[tokio::test]
async fn a_cluster_that_is_pending_deletion_has_no_rights() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let applicant = Applicant::new(&fresh("terminating"));
    let member = applicant.join(&control_plane.init).await;
    let name = applicant.name.as_str();
    change(&stage, name, &json!({ "metadata": { "finalizers": ["example.com/hold"] } })).await;
    let clusters: Api<Cluster> = Api::all(stage.hub.client.clone());
    clusters.delete(name, &DeleteParams::default()).await.unwrap();
    let took = wait("its rights are revoked", async || read(&member, name).await == 403).await;
    assert!(took < AT_ONCE, "{took:?}");
    change(&stage, name, &json!({ "metadata": { "finalizers": null } })).await;
}

#[tokio::test]
async fn an_agent_that_was_suspended_works_again_with_the_same_key() {
    let scene = Scene::set().await;
    let mut agent = scene.agent("pod-1");
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let key = scene.secrets().get(registration::IDENTITY_SECRET).await.unwrap().data.unwrap()["tls.key"].clone();
    let accepted = async |yes: bool| {
        let change = json!({ "spec": { "accepted": yes } });
        scene.clusters().patch(&scene.name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };
    accepted(false).await;
    wait("the refusal is noticed", async || agent.ask("/readyz").await.0 == 503).await;
    accepted(true).await;
    agent.ready(Duration::from_secs(60)).await;
    scene.until_ready().await;
    let now = scene.secrets().get(registration::IDENTITY_SECRET).await.unwrap().data.unwrap()["tls.key"].clone();
    assert!(now == key, "another key");
}

/// Console blocks of a section of docs/security.md.
fn scripts(section: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md");
    let page = fs_err::read_to_string(path).unwrap();
    let (_, rest) = page.split_once(&format!("### {section}\n")).expect("the section is there");
    let section = rest.split("\n## ").next().unwrap().split("\n### ").next().unwrap();
    section.split("```console\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs a script of the documentation with this kubeconfig.
async fn run(stage: &Stage, kubeconfig: &Path, script: &str) -> std::process::Output {
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", stage.kubectl().parent().unwrap().display());
    let mut bash = Command::new("bash");
    bash.args(["-euo", "pipefail", "-c", script]).env("PATH", path).env("KUBECONFIG", kubeconfig);
    tokio::task::spawn_blocking(move || bash.output().unwrap()).await.unwrap()
}

async fn follow(stage: &Stage, kubeconfig: &Path, script: &str) {
    let ran = run(stage, kubeconfig, script).await;
    assert!(ran.status.success(), "{script}\n{}", String::from_utf8_lossy(&ran.stderr));
}

/// Message of the condition `Bootstrapped`.
async fn report_of(hub: &Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(hub.clone(), "fleet");
    let map = maps.get(BOOTSTRAP_STATUS).await.unwrap();
    find_condition(&status::read_conditions(&map), "Bootstrapped").unwrap().message.clone()
}

/// Makes the scheduler apply its objects anew, by a change of one of them that changes nothing, and waits until it has.
async fn apply_again(control_plane: &mut ControlPlane) {
    let file = control_plane.scheduler.dir.path().join("bootstrap/rbac.yaml");
    let text = fs_err::read_to_string(&file).unwrap();
    let passes = async |scheduler: &mut Program| {
        let metrics = scheduler.ask("/metrics").await.1;
        let line = metrics.lines().find(|line| line.starts_with("fleet_bootstrap_passes_total{result=\"ok\"}"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("it is counted")
    };
    let before = passes(&mut control_plane.scheduler).await;
    fs_err::write(&file, format!("{text} ")).unwrap();
    wait("the objects are applied again", async || passes(&mut control_plane.scheduler).await > before).await;
}

/// Restores the chart's bindings. All tests share the hub, so it is done also where one fails.
async fn restore(hub: &Client) {
    let all: Api<ClusterRoleBinding> = Api::all(hub.clone());
    for name in ["fleet:admins", "fleet:agent-bootstrap"] {
        let _ = all.delete(name, &DeleteParams::default()).await;
    }
}

async fn restoring(hub: &Client, test: impl Future<Output = ()>) {
    let outcome = AssertUnwindSafe(test).catch_unwind().await;
    restore(hub).await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

/// Status code of a request for a certificate by token, which is shaped so that the API server itself refuses it.
async fn ask_by_token(init: &Init) -> u16 {
    let requests: Api<CertificateSigningRequest> = Api::all(daemon_client::token_client(init).unwrap());
    match requests.get("no-such").await {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn registration_that_an_operator_closes_stays_closed_until_it_is_opened_again() {
    let stage = Stage::hub().await;
    let hub = stage.hub.client.clone();
    restoring(&hub, async {
        let mut control_plane = ControlPlane::start(&stage, "").await;
        let [close, west, open] =
            scripts("Close registration").try_into().expect("how to close it, and how to open it");
        assert_eq!(ask_by_token(&control_plane.init).await, 404);
        follow(&stage, &stage.hub.kubeconfig, &close).await;
        assert_eq!(ask_by_token(&control_plane.init).await, 403);
        apply_again(&mut control_plane).await;
        assert_eq!(ask_by_token(&control_plane.init).await, 403, "it was opened by the scheduler");
        wait("the report says so", async || report_of(&hub).await.contains("ClusterRoleBinding/fleet:agent-bootstrap"))
            .await;
        // A new leader applies everything as well.
        let config = format!("agentEndpoint: {}", stage.hub.url);
        let next = Program::scheduler(&stage.hub.kubeconfig, &config, "two");
        std::mem::replace(&mut control_plane.scheduler, next).kill();
        control_plane.scheduler.ready(Duration::from_secs(90)).await;
        assert_eq!(ask_by_token(&control_plane.init).await, 403, "it was opened by the next scheduler");

        let own = own_token::created(&stage, "west");
        assert_eq!(ask_by_token(&own).await, 403);
        follow(&stage, &stage.hub.kubeconfig, &west).await;
        assert_eq!((ask_by_token(&own).await, ask_by_token(&control_plane.init).await), (404, 403));

        follow(&stage, &stage.hub.kubeconfig, &open).await;
        apply_again(&mut control_plane).await;
        assert_eq!(ask_by_token(&control_plane.init).await, 404);
        // A binding that is deleted, without an annotation, comes back, as one of kube-apiserver's own does.
        restore(&hub).await;
        assert_eq!(ask_by_token(&control_plane.init).await, 403);
        apply_again(&mut control_plane).await;
        assert_eq!(ask_by_token(&control_plane.init).await, 404);
    })
    .await;
}

#[tokio::test]
async fn the_binding_of_all_agents_that_an_earlier_build_made_is_deleted() {
    let stage = Stage::hub().await;
    let all: Api<ClusterRoleBinding> = Api::all(stage.hub.client.clone());
    let binding = json!({
        "metadata": { "name": "fleet:agents-renew" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "fleet:agent-bootstrap" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "fleet:agents" }],
    });
    all.create(&PostParams::default(), &serde_json::from_value(binding).unwrap()).await.unwrap();
    let _control_plane = ControlPlane::start(&stage, "").await;
    assert!(all.get_opt("fleet:agents-renew").await.unwrap().is_none(), "any agent that was revoked may ask");
}

/// A kubeconfig with a certificate as an install issues it to an operator, in a file in `folder`.
async fn operator(stage: &Stage, folder: &Path, file: &str) -> PathBuf {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let user = format!("fleet-admin:{}", digest::short_digest(&key.subject_public_key_info()));
    params.distinguished_name.push(DnType::OrganizationName, "fleet:admins");
    params.distinguished_name.push(DnType::CommonName, user);
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    let requests: Api<CertificateSigningRequest> = Api::all(stage.hub.client.clone());
    let name = fresh("operator");
    let request = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "request": k8s_openapi::ByteString(pem.into_bytes()), "expirationSeconds": 3600,
            "signerName": "kubernetes.io/kube-apiserver-client", "usages": ["client auth", "digital signature"],
        },
    }));
    requests.create(&PostParams::default(), &request.unwrap()).await.unwrap();
    let yes = json!({ "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "Test" }] } });
    requests.patch_subresource("approval", &name, &PatchParams::default(), &Patch::Merge(&yes)).await.unwrap();
    let mut certificate = None;
    wait("the certificate is signed", async || {
        certificate = requests.get(&name).await.unwrap().status.and_then(|status| status.certificate);
        certificate.is_some()
    })
    .await;
    let mut kubeconfig = Kubeconfig::read_from(&stage.hub.kubeconfig).unwrap();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    *user = AuthInfo {
        client_certificate_data: Some(base64(&certificate.unwrap().0)),
        client_key_data: Some(base64(key.serialize_pem().as_bytes()).into()),
        ..AuthInfo::default()
    };
    let file = folder.join(file);
    fs_err::write(&file, serde_saphyr::to_string(&kubeconfig).unwrap()).unwrap();
    file
}

#[tokio::test]
async fn a_kubeconfig_of_an_operator_that_leaked_is_ended_and_the_next_one_goes_on() {
    let stage = Stage::hub().await;
    let hub = stage.hub.client.clone();
    restoring(&hub, async {
        let mut control_plane = ControlPlane::start(&stage, "").await;
        let folder = tempfile::tempdir().unwrap();
        let leaked = operator(&stage, folder.path(), "leaked").await;
        let next = operator(&stage, folder.path(), "next").await;
        let [_, end] = scripts("End a kubeconfig that leaked").try_into().expect("how to get the next and end the old");
        let reads = async |file: &Path| run(&stage, file, "kubectl get namespaces").await.status.success();
        assert!(reads(&leaked).await && reads(&next).await);
        follow(&stage, &next, &end).await;
        assert!(!reads(&leaked).await && reads(&next).await);
        apply_again(&mut control_plane).await;
        assert!(!reads(&leaked).await && reads(&next).await, "the scheduler gave it back");
    })
    .await;
}
