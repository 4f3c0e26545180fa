//! The scheduler brings up the inside of a control plane, again and again, and says what it cannot do.

use std::collections::BTreeMap;
use std::time::Duration;

use fleetctl::api::crd::condition::find_condition;
use fleetctl::api::labels::{BOOTSTRAP_STATUS, INIT_SECRET, SCHEDULER_MANAGER};
use fleetctl::check::inside;
use fleetctl::scheduler::leader::status;
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicyBinding;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::applicant::fresh;
use crate::support::{Program, Stage, Wire, client_of, wait};

/// Resource versions of everything that the scheduler keeps, by kind and name.
async fn versions(client: &Client) -> BTreeMap<String, String> {
    let kinds = [
        ("", "v1", "Namespace"),
        ("", "v1", "Secret"),
        ("", "v1", "ConfigMap"),
        ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRole"),
        ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding"),
        ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema"),
        ("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration"),
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding"),
    ];
    let mut versions = BTreeMap::new();
    for (group, version, kind) in kinds {
        let gvk = GroupVersionKind::gvk(group, version, kind);
        let (resource, _) = kube::discovery::pinned_kind(client, &gvk).await.unwrap();
        let all: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        for object in all.list(&ListParams::default()).await.unwrap() {
            let name = object.name_any();
            if name.contains("fleet") || name.starts_with("bootstrap-token") {
                let has_status = ["FlowSchema", "ValidatingAdmissionPolicy"].contains(&kind);
                let version = if has_status { written(&object) } else { object.resource_version().unwrap() };
                versions.insert(format!("{kind}/{name}"), version);
            }
        }
    }
    versions
}

/// What the scheduler writes of an object that the API server applies a status to. Where that was in a later second, the
/// next apply of the scheduler is a write although it changes nothing: the managed fields are in order of time, and only
/// those that are in the same order as before count as unchanged (seen with 1.36).
fn written(object: &DynamicObject) -> String {
    let meta = &object.metadata;
    let ours = object.managed_fields().iter().find(|one| one.manager.as_deref() == Some(SCHEDULER_MANAGER));
    let fields = &ours.expect("the scheduler applied it").fields_v1;
    // The generation counts writes of the specification.
    format!("{:?} {:?} {:?} {:?} {fields:?}", meta.uid, meta.generation, meta.labels, meta.annotations)
}

async fn init_text(client: &Client) -> String {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "fleet");
    let secret = secrets.get(INIT_SECRET).await.unwrap();
    String::from_utf8(secret.data.unwrap()["kubeconfig"].0.clone()).unwrap()
}

async fn init_kubeconfig(client: &Client) -> Kubeconfig {
    Kubeconfig::from_yaml(&init_text(client).await).unwrap()
}

#[tokio::test]
async fn a_second_start_writes_nothing_and_sigterm_frees_the_lease() {
    let stage = Stage::hub().await;
    let config = format!("agentEndpoint: {}", stage.hub.url);
    let mut first = Program::scheduler(&stage.hub.kubeconfig, &config, "one");
    first.ready(Duration::from_secs(40)).await;
    let before = versions(&stage.hub.client).await;
    let report = format!("ConfigMap/{BOOTSTRAP_STATUS}");
    for kept in [
        "CustomResourceDefinition/clusters.cluster.fleet-scheduler.io",
        "Secret/fleet-cluster-init-kubeconfig",
        "ValidatingAdmissionPolicyBinding/fleet-apiservices",
        "ValidatingAdmissionPolicyBinding/fleet-conversions",
        &report,
    ] {
        assert!(before.contains_key(kept), "{kept}: {before:?}");
    }
    let (took, clean) = first.terminate().await;
    assert!(clean && took < Duration::from_secs(5), "{took:?}");
    let leases: Api<Lease> = Api::namespaced(stage.hub.client.clone(), "kube-system");
    assert_eq!(leases.get("fleet-scheduler").await.unwrap().spec.unwrap().holder_identity.as_deref(), Some(""));

    let mut second = Program::scheduler(&stage.hub.kubeconfig, &config, "two");
    let took = second.ready(Duration::from_secs(40)).await;
    assert!(took < Duration::from_secs(10), "a freed lease needs no waiting: {took:?}");
    assert_eq!(versions(&stage.hub.client).await, before);
}

/// A definition of which objects are stored in one version and served in two, with a Service that converts them.
fn converted(group: &str, storage: &str) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let version = |name: &str| json!({"name": name, "served": true, "storage": name == storage, "schema": schema});
    let service = json!({"namespace": "operators", "name": "converter"});
    let webhook = json!({"conversionReviewVersions": ["v1"], "clientConfig": {"service": service}});
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("deeds.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "versions": [version("v1beta1"), version("v1")],
            "names": {"kind": "Deed", "plural": "deeds", "singular": "deed"},
            "conversion": {"strategy": "Webhook", "webhook": webhook}}})
}

#[tokio::test]
async fn what_a_service_has_to_answer_for_is_refused_and_named_where_it_is_there_already() {
    let stage = Stage::hub().await;
    let client = stage.hub.client.clone();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let services: Api<APIService> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let definition = |group: &str, storage: &str| -> CustomResourceDefinition {
        serde_json::from_value(converted(group, storage)).unwrap()
    };
    let aggregated = |group: &str| {
        serde_json::from_value::<APIService>(json!({"metadata": {"name": format!("v1beta1.gauge.{group}")},
            "spec": {"group": format!("gauge.{group}"), "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"namespace": "gauge", "name": "adapter"}}}))
        .unwrap()
    };
    // An API server on which no scheduler has been yet accepts both.
    for name in ["fleet-apiservices", "fleet-conversions"] {
        let _ = bindings.delete(name, &DeleteParams::default()).await;
    }
    let (before, later) = (format!("{}.example.com", fresh("before")), format!("{}.example.com", fresh("later")));
    wait("a definition of before", async || {
        definitions.create(&PostParams::default(), &definition(&before, "v1beta1")).await.is_ok()
    })
    .await;
    wait("an APIService of before", async || {
        services.create(&PostParams::default(), &aggregated(&before)).await.is_ok()
    })
    .await;

    let mut scheduler = Program::scheduler(&stage.hub.kubeconfig, &format!("agentEndpoint: {}", stage.hub.url), "one");
    scheduler.ready(Duration::from_secs(40)).await;
    let refused = async |made: Result<(), kube::Error>| match made {
        Err(kube::Error::Api(status)) if status.code == 403 => Some(status.message),
        _ => None,
    };
    wait("the policies act", async || {
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let service = services.create(&params, &aggregated(&later)).await.map(drop);
        let older = definitions.create(&params, &definition(&later, "v1beta1")).await.map(drop);
        refused(service).await.is_some_and(|why| why.contains("Service gauge/adapter cannot answer"))
            && refused(older).await.is_some_and(|why| why.contains("cannot convert objects that are stored in v1beta1"))
    })
    .await;
    // One that needs no conversion when it is listed is accepted, and what has objects of an older version is not.
    definitions.create(&PostParams::default(), &definition(&later, "v1")).await.unwrap();
    let moved = json!({"spec": {"versions": definition(&before, "v1").spec.versions}});
    let moved = definitions.patch(&format!("deeds.{before}"), &PatchParams::default(), &Patch::Merge(&moved)).await;
    let why = refused(moved.map(drop)).await.expect("refused");
    assert!(why.contains("as status.storedVersions says"), "{why}");

    // What is there already is named, can be labelled, put right and deleted.
    wait("both are named", async || {
        let inside = inside::read_inside(&client, "fleet").await.unwrap();
        let names = |found: &[inside::Served]| found.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
        names(&inside.conversions) == [format!("deeds.{before}")]
            && names(&inside.own_api.api_services) == [format!("v1beta1.gauge.{before}")]
    })
    .await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    services.patch(&format!("v1beta1.gauge.{before}"), &PatchParams::default(), &label).await.unwrap();
    let none = json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}});
    definitions.patch(&format!("deeds.{before}"), &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    services.delete(&format!("v1beta1.gauge.{before}"), &DeleteParams::default()).await.unwrap();
    let inside = inside::read_inside(&client, "fleet").await.unwrap();
    assert_eq!((inside.conversions, inside.own_api.unread), (Vec::new(), None));
    for group in [before, later] {
        definitions.delete(&format!("deeds.{group}"), &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn an_init_token_may_create_and_read_requests_and_nothing_else() {
    let stage = Stage::hub().await;
    let mut scheduler = Program::scheduler(&stage.hub.kubeconfig, &format!("agentEndpoint: {}", stage.hub.url), "one");
    scheduler.ready(Duration::from_secs(40)).await;
    let kubeconfig = init_kubeconfig(&stage.hub.client).await;
    let text: serde_json::Value = serde_saphyr::from_str(&init_text(&stage.hub.client).await).unwrap();
    let token = text["users"][0]["user"]["token"].as_str().unwrap();
    let agent = client_of(kubeconfig).await;
    let secrets: Api<Secret> = Api::namespaced(agent.clone(), "fleet");
    let requests: Api<CertificateSigningRequest> = Api::all(agent.clone());
    let refused = |e: kube::Error| matches!(e, kube::Error::Api(s) if s.code == 403);
    assert!(refused(secrets.get(INIT_SECRET).await.unwrap_err()));
    assert!(refused(requests.list(&ListParams::default()).await.unwrap_err()));
    assert!(requests.get_opt("no-such").await.unwrap().is_none());
    let (_, secret_half) = token.split_once('.').unwrap();
    assert!(!scheduler.log().contains(secret_half), "a token was logged");
}

#[tokio::test]
async fn the_init_secret_follows_the_address_and_comes_back_when_deleted() {
    let stage = Stage::hub().await;
    let mut scheduler = Program::scheduler(&stage.hub.kubeconfig, "{}", "one");
    let secrets: Api<Secret> = Api::namespaced(stage.hub.client.clone(), "fleet");
    let maps: Api<ConfigMap> = Api::namespaced(stage.hub.client.clone(), "fleet");
    // Without an address the scheduler is not ready and says why, to probes and to the CLI.
    wait("the missing address is reported", async || {
        let (code, body) = scheduler.ask("/readyz").await;
        let Some(map) = maps.get_opt(BOOTSTRAP_STATUS).await.unwrap() else { return false };
        let conditions = status::read_conditions(&map);
        let secret = find_condition(&conditions, "InitSecretReady").map(|c| (c.status.clone(), c.reason.clone()));
        code == 503
            && body.contains("AgentEndpointUnknown")
            && secret == Some(("False".to_owned(), "AgentEndpointUnknown".to_owned()))
            && find_condition(&conditions, "Bootstrapped").is_some_and(|c| c.status == "True")
    })
    .await;
    let config = scheduler.dir.path().join("config.yaml");
    fs_err::write(&config, format!("agentEndpoint: {}\ninitTokenTTL: 20s", stage.hub.url)).unwrap();
    scheduler.ready(Duration::from_secs(40)).await;
    let server = |k: &Kubeconfig| k.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    assert_eq!(server(&init_kubeconfig(&stage.hub.client).await), stage.hub.url);

    secrets.delete(INIT_SECRET, &DeleteParams::default()).await.unwrap();
    fs_err::write(&config, "agentEndpoint: https://fleet.example:6443").unwrap();
    wait("the Secret is back with the new address", async || {
        secrets.get_opt(INIT_SECRET).await.unwrap().is_some()
            && server(&init_kubeconfig(&stage.hub.client).await) == "https://fleet.example:6443"
    })
    .await;
}

#[tokio::test]
async fn what_cannot_be_applied_is_named_with_the_servers_reason() {
    let stage = Stage::hub().await;
    let mut scheduler = Program::scheduler(&stage.hub.kubeconfig, &format!("agentEndpoint: {}", stage.hub.url), "one");
    scheduler.ready(Duration::from_secs(40)).await;
    let broken = json!([{ "apiVersion": "example.com/v1", "kind": "Nothing", "metadata": { "name": "x" } }]);
    let file = scheduler.dir.path().join("bootstrap/broken.yaml");
    fs_err::write(&file, broken.to_string()).unwrap();
    wait("the object is named", async || {
        let (code, body) = scheduler.ask("/readyz").await;
        code == 503 && body.contains("broken.yaml: Nothing/x")
    })
    .await;
    fs_err::remove_file(file).unwrap();
    scheduler.ready(Duration::from_secs(60)).await;
}

#[tokio::test]
async fn the_api_may_come_later_and_only_one_line_says_so() {
    let stage = Stage::hub().await;
    let wire = Wire::to(&stage.hub.url, false).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = wire.kubeconfig(&stage.hub.kubeconfig, folder.path());
    let mut scheduler = Program::scheduler(&kubeconfig, &format!("agentEndpoint: {}", stage.hub.url), "one");
    tokio::time::sleep(Duration::from_secs(7)).await;
    let (code, body) = scheduler.ask("/readyz").await;
    assert_eq!(code, 503);
    assert!(body.contains("does not answer"), "{body}");
    assert_eq!(scheduler.ask("/healthz").await.0, 200);
    let lines = scheduler.log().matches("does not answer").count();
    assert_eq!(lines, 1, "{}", scheduler.log());
    wire.set(true);
    scheduler.ready(Duration::from_secs(40)).await;
    assert!(scheduler.terminate().await.1);
}

#[tokio::test]
async fn why_it_is_not_ready_is_told_to_its_own_pod_only() {
    let stage = Stage::hub().await;
    let wire = Wire::to(&stage.hub.url, false).await;
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = wire.kubeconfig(&stage.hub.kubeconfig, folder.path());
    // The address at which the clusters see this machine: whoever connects to it does not come from the loopback.
    let hub = stage.hub.url.trim_start_matches("https://");
    let own = std::net::TcpStream::connect(hub).unwrap().local_addr().unwrap().ip();
    assert!(!own.is_loopback());
    let seen_at = async |address: String| {
        let flag = format!("--admin-address={address}:0");
        let mut scheduler = Program::scheduler_with(&kubeconfig, "", "one", &[&flag]);
        wait("it answers", async || scheduler.ask("/healthz").await.0 == 200).await;
        wait("it knows why", async || scheduler.log().contains("does not answer")).await;
        scheduler.ask("/readyz").await
    };
    let (code, body) = seen_at("127.0.0.1".to_owned()).await;
    assert!(code == 503 && body.contains("does not answer"), "{code} {body}");
    let (code, body) = seen_at(own.to_string()).await;
    assert!(code == 503 && !body.contains("does not answer"), "{code} {body}");
}

#[tokio::test]
async fn a_standby_takes_over_when_the_leader_dies_and_not_before() {
    let stage = Stage::hub().await;
    let config = format!("agentEndpoint: {}", stage.hub.url);
    let mut leader = Program::scheduler(&stage.hub.kubeconfig, &config, "leader");
    leader.ready(Duration::from_secs(40)).await;
    assert!(leader.ask("/readyz").await.1.starts_with("leading"));
    let mut standby = Program::scheduler(&stage.hub.kubeconfig, &config, "standby");
    standby.ready(Duration::from_secs(10)).await;
    tokio::time::sleep(Duration::from_secs(17)).await;
    assert!(standby.ask("/readyz").await.1.starts_with("standing by; the leader is leader"));
    leader.kill();
    let killed = std::time::Instant::now();
    wait("the standby leads", async || standby.ask("/readyz").await.1.starts_with("leading")).await;
    let took = killed.elapsed();
    assert!(took > Duration::from_secs(10) && took < Duration::from_secs(25), "{took:?}");
}

#[tokio::test]
async fn an_edit_by_hand_of_a_bootstrap_object_is_undone_at_the_next_start() {
    let stage = Stage::hub().await;
    let config = format!("agentEndpoint: {}", stage.hub.url);
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(stage.hub.client.clone());
    let mut scheduler = Program::scheduler(&stage.hub.kubeconfig, &config, "one");
    scheduler.ready(Duration::from_secs(40)).await;
    scheduler.terminate().await;
    let wider = json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] });
    roles.patch("fleet:agent-bootstrap", &PatchParams::default(), &Patch::Merge(&wider)).await.unwrap();
    let mut scheduler = Program::scheduler(&stage.hub.kubeconfig, &config, "two");
    scheduler.ready(Duration::from_secs(40)).await;
    let now = roles.get("fleet:agent-bootstrap").await.unwrap().rules.unwrap();
    assert_eq!(now.len(), 1);
    assert_eq!(now[0].verbs, ["create", "get"]);
}
