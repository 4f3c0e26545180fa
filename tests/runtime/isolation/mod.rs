//! What a credential is good for, asked about everything that the API serves: for its owner's things, and nothing else.
//!
//! Three questions each time, with the credential itself: the review of every verb on every resource in every place;
//! the rules that bind it, for names that nobody thought of; and real requests on every object that is really there.
//! What it is meant to be good for is read from `docs/security.md`.

mod service_account;
mod table;
mod tenant;

use std::collections::BTreeMap;

use fleetctl::api::Cluster;
use fleetctl::api::labels::{ANNOTATION_ALLOW_NEW_KEY, ANNOTATION_KEY_FINGERPRINT, INIT_SECRET};
use fleetctl::k8s::connect::daemon_client;
use futures::StreamExt as _;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, ResourceRule, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SelfSubjectRulesReview,
    SelfSubjectRulesReviewSpec,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use self::table::{Credential, Grant, grants};
use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::{Stage, wait};

/// A resource or subresource as discovery lists it, once for all versions of its group.
#[derive(Debug, Clone)]
struct Served {
    /// `pods/log`, `clusters.cluster.fleet-scheduler.io/status`: how people write it.
    title: String,
    group: String,
    /// Path up to the version: `/api/v1`, `/apis/apps/v1`.
    root: String,
    plural: String,
    sub: Option<String>,
    namespaced: bool,
    verbs: Vec<String>,
}

/// Everything that the API serves.
async fn served(admin: &Client) -> Vec<Served> {
    let mut found = BTreeMap::new();
    note(&mut found, "", "/api/v1", admin.list_core_api_resources("v1").await.unwrap());
    for group in admin.list_api_groups().await.unwrap().groups {
        for version in group.versions {
            let resources = admin.list_api_group_resources(&version.group_version).await.unwrap();
            note(&mut found, &group.name, &format!("/apis/{}", version.group_version), resources);
        }
    }
    assert!(found.len() > 80, "only {} resources are served", found.len());
    found.into_values().collect()
}

fn note(found: &mut BTreeMap<String, Served>, group: &str, root: &str, list: APIResourceList) {
    for resource in list.resources {
        let (plural, sub) = match resource.name.split_once('/') {
            Some((plural, sub)) => (plural.to_owned(), Some(sub.to_owned())),
            None => (resource.name.clone(), None),
        };
        let title = title(group, &plural, sub.as_deref());
        let one = Served {
            title: title.clone(),
            group: group.to_owned(),
            root: root.to_owned(),
            plural,
            sub,
            namespaced: resource.namespaced,
            verbs: Vec::new(),
        };
        let known = found.entry(title).or_insert(one);
        for verb in resource.verbs {
            if !known.verbs.contains(&verb) {
                known.verbs.push(verb);
            }
        }
    }
}

fn title(group: &str, plural: &str, sub: Option<&str>) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    let sub = sub.map(|sub| format!("/{sub}")).unwrap_or_default();
    format!("{plural}{dot}{group}{sub}")
}

/// A credential, what it is meant for, and where it is tried.
struct Trial {
    admin: Client,
    client: Client,
    grants: Vec<Grant>,
    namespaces: Vec<String>,
    /// Names that a rule might let through.
    names: Vec<String>,
    /// Whether reviews ask about each of them everywhere, rather than about one after another. The rules that bind the
    /// credential, which are all read, are the only ones by which a name could make a difference.
    all_names: bool,
    served: Vec<Served>,
}

impl Trial {
    fn is_granted(&self, verb: &str, title: &str, namespace: &str, name: Option<&str>) -> bool {
        self.grants.iter().any(|grant| grant.covers(verb, title, namespace, name))
    }

    async fn run(&self) {
        let asked = self.reviews().await;
        let rules = self.rules().await;
        let tried = self.requests().await;
        assert!(
            asked > 2500 && rules >= self.namespaces.len() && tried > 500,
            "{asked} reviews, {rules} rules, {tried} requests"
        );
    }

    /// Reviews of every verb that is served, in every place, on all objects together and on some names.
    async fn reviews(&self) -> usize {
        // Beyond what is served: verbs that only exist as rights.
        let rights = [
            ("certificates.k8s.io", "signers", &["approve", "sign", "attest"][..]),
            ("rbac.authorization.k8s.io", "clusterroles", &["bind", "escalate"]),
            ("rbac.authorization.k8s.io", "roles", &["bind", "escalate"]),
            ("", "users", &["impersonate"]),
            ("", "groups", &["impersonate"]),
            ("", "serviceaccounts", &["impersonate"]),
        ];
        let served = self.served.iter().flat_map(|one| {
            let verbs = one.verbs.iter().map(String::as_str);
            verbs.map(move |verb| (one.group.as_str(), one.plural.as_str(), one.sub.as_deref(), one.namespaced, verb))
        });
        let rights = rights.iter().flat_map(|(group, plural, verbs)| {
            verbs.iter().map(move |verb| (*group, *plural, None, *plural == "roles", *verb))
        });
        let mut questions = Vec::new();
        for (group, plural, sub, namespaced, verb) in served.chain(rights) {
            let places = self.namespaces.iter().filter(|_| namespaced).map(String::as_str);
            for namespace in places.chain([""]) {
                let title = title(group, plural, sub);
                let named = |name: &str| {
                    self.grants.iter().any(|grant| grant.title == title && grant.name.as_deref() == Some(name))
                };
                let turn = questions.len() % self.names.len();
                let asked = |(index, name): &(usize, &str)| self.all_names || *index == turn || named(name);
                let names = self.names.iter().map(String::as_str).enumerate().filter(asked);
                for name in std::iter::once(None).chain(names.map(|(_, name)| Some(name))) {
                    questions.push((group, plural, sub, namespace, name, verb));
                }
            }
        }
        let asked = questions.len();
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let wrong: Vec<String> = futures::stream::iter(questions)
            .map(|(group, plural, sub, namespace, name, verb)| {
                let attributes = ResourceAttributes {
                    group: Some(group.to_owned()),
                    resource: Some(plural.to_owned()),
                    subresource: sub.map(str::to_owned),
                    namespace: Some(namespace.to_owned()),
                    name: name.map(str::to_owned),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                };
                let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
                let api = api.clone();
                async move {
                    let review = SelfSubjectAccessReview { spec, ..Default::default() };
                    let answer = api.create(&PostParams::default(), &review).await.unwrap();
                    let allowed = answer.status.is_some_and(|status| status.allowed);
                    let title = title(group, plural, sub);
                    let meant = self.is_granted(verb, &title, namespace, name);
                    let is = if allowed { "allowed" } else { "refused" };
                    (allowed != meant).then(|| format!("{is}: {verb} {title} in {namespace:?} named {name:?}"))
                }
            })
            .buffer_unordered(16)
            .filter_map(std::future::ready)
            .collect()
            .await;
        assert!(wrong.is_empty(), "{wrong:#?}");
        asked
    }

    /// The rules that bind the credential, whatever the names in them.
    async fn rules(&self) -> usize {
        let api: Api<SelfSubjectRulesReview> = Api::all(self.client.clone());
        let mut seen = 0;
        for namespace in &self.namespaces {
            let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.clone()) };
            let review = SelfSubjectRulesReview { spec, ..Default::default() };
            let status = api.create(&PostParams::default(), &review).await.unwrap().status.unwrap();
            for rule in &status.resource_rules {
                seen += 1;
                let unmeant = self.unmeant(rule, namespace);
                assert!(unmeant.is_empty(), "in {namespace}: {unmeant:?} by {rule:?}");
            }
            for rule in &status.non_resource_rules {
                let about_the_server = [
                    "/.well-known/openid-configuration",
                    "/api",
                    "/healthz",
                    "/livez",
                    "/openapi",
                    "/openid/v1/jwks",
                    "/readyz",
                    "/version",
                ];
                let urls = rule.non_resource_urls.iter().flatten();
                let more: Vec<_> =
                    urls.filter(|url| !about_the_server.iter().any(|own| url.starts_with(own))).collect();
                assert!(more.is_empty() && rule.verbs == ["get"], "{rule:?}");
            }
        }
        seen
    }

    fn unmeant(&self, rule: &ResourceRule, namespace: &str) -> Vec<String> {
        let names: Vec<_> = rule.resource_names.iter().flatten().map(|name| Some(name.as_str())).collect();
        let names = if names.is_empty() { vec![None] } else { names };
        let mut unmeant = Vec::new();
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                let (plural, sub) = match resource.split_once('/') {
                    Some((plural, sub)) => (plural, Some(sub)),
                    None => (resource.as_str(), None),
                };
                let title = title(group, plural, sub);
                for (verb, name) in rule.verbs.iter().flat_map(|verb| names.iter().map(move |name| (verb, *name))) {
                    // A rule of a ClusterRole holds in every place; for what has no namespace, that is none.
                    let meant = [namespace, ""].iter().any(|place| self.is_granted(verb, &title, place, name));
                    if !meant {
                        unmeant.push(format!("{verb} {title} named {name:?}"));
                    }
                }
            }
        }
        unmeant
    }

    /// Real requests for every verb on every object that is there, and for one that is not where there is none.
    async fn requests(&self) -> usize {
        let mut attempts = Vec::new();
        for one in self.served.iter().filter(|one| one.sub.is_none()) {
            let subs: Vec<_> = self
                .served
                .iter()
                .filter(|s| s.sub.is_some() && s.group == one.group && s.plural == one.plural)
                .collect();
            let places = if one.namespaced { self.namespaces.clone() } else { vec![String::new()] };
            for namespace in places {
                let mut names = if one.verbs.iter().any(|verb| verb == "list") {
                    names_in(&self.admin, &one.path(&namespace, None)).await
                } else {
                    Vec::new()
                };
                names.push("no-such".to_owned());
                for verb in &one.verbs {
                    if ["list", "watch", "create", "deletecollection"].contains(&verb.as_str()) {
                        attempts.push((one, verb.as_str(), namespace.clone(), None));
                    } else {
                        let each = names.iter().map(|name| (one, verb.as_str(), namespace.clone(), Some(name.clone())));
                        attempts.extend(each);
                    }
                }
                for sub in &subs {
                    for verb in &sub.verbs {
                        let each =
                            names.iter().map(|name| (*sub, verb.as_str(), namespace.clone(), Some(name.clone())));
                        attempts.extend(each);
                    }
                }
            }
        }
        attempts.retain(|(one, verb, namespace, name)| !self.is_granted(verb, &one.title, namespace, name.as_deref()));
        let tried = attempts.len();
        let wrong: Vec<String> = futures::stream::iter(attempts)
            .map(|(one, verb, namespace, name)| async move {
                let path = one.path(&namespace, name.as_deref());
                let code = attempt(&self.client, verb, &path, &[]).await;
                (code != 403).then(|| format!("{code}: {verb} {path}"))
            })
            .buffer_unordered(16)
            .filter_map(std::future::ready)
            .collect()
            .await;
        assert!(wrong.is_empty(), "{wrong:#?}");
        for (verb, path, headers) in [
            ("get", "/metrics", &[][..]),
            ("get", "/debug/pprof/", &[]),
            ("get", "/logs/", &[]),
            ("get", "/configz", &[]),
            ("get", "/api/v1/namespaces", &[("Impersonate-User", "fleet:scheduler")]),
            ("get", "/api/v1/namespaces", &[("Impersonate-User", "x"), ("Impersonate-Group", "system:masters")]),
        ] {
            assert_eq!(attempt(&self.client, verb, path, headers).await, 403, "{verb} {path} {headers:?}");
        }
        tried
    }
}

impl Served {
    fn path(&self, namespace: &str, name: Option<&str>) -> String {
        let place = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let name = name.map(|name| format!("/{name}")).unwrap_or_default();
        let sub = self.sub.as_ref().map(|sub| format!("/{sub}")).unwrap_or_default();
        format!("{}{place}/{}{name}{sub}", self.root, self.plural)
    }
}

async fn names_in(admin: &Client, path: &str) -> Vec<String> {
    let request = http::Request::get(path).body(Vec::new()).unwrap();
    // Some resources are listed and cannot be: `componentstatuses`, where a component is elsewhere.
    let Ok(list) = admin.request::<Value>(request).await else { return Vec::new() };
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// The status code of a request that, if it were let through, would do as little as it can.
async fn attempt(client: &Client, verb: &str, path: &str, headers: &[(&str, &str)]) -> u16 {
    let (method, query) = match verb {
        "get" | "list" => ("GET", ""),
        "watch" => ("GET", "?watch=true&timeoutSeconds=1"),
        "create" => ("POST", "?dryRun=All"),
        "update" => ("PUT", "?dryRun=All"),
        "patch" => ("PATCH", "?dryRun=All"),
        "delete" | "deletecollection" => ("DELETE", "?dryRun=All"),
        other => panic!("no request for {other}"),
    };
    let kind = if verb == "patch" { "application/merge-patch+json" } else { "application/json" };
    let mut request =
        http::Request::builder().method(method).uri(format!("{path}{query}")).header("content-type", kind);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if method == "GET" || method == "DELETE" { Vec::new() } else { b"{}".to_vec() };
    match client.request_text(request.body(body).unwrap()).await {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{verb} {path}: {error}"),
    }
}

/// The Secret of the bootstrap token that the init kubeconfig holds.
async fn token_secret(admin: &Client) -> String {
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "kube-system");
    let all = secrets.list_metadata(&ListParams::default()).await.unwrap();
    let found = all.items.into_iter().filter_map(|secret| secret.metadata.name);
    found.into_iter().find(|name| name.starts_with("bootstrap-token-")).expect("the scheduler made one")
}

async fn an_agent(all_names: bool) {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let (a, b) = (Applicant::new(&fresh("iso-a")), Applicant::new(&fresh("iso-b")));
    let member = a.join(&control_plane.init).await;
    b.join(&control_plane.init).await;
    let (own, other) = (format!("fleet-c-{}", a.name), format!("fleet-c-{}", b.name));
    let admin = stage.hub.client.clone();
    let names = [&a.name, &b.name, &other, &format!("fleet:agent:{}", a.name), "fleet-agent", "kube-system"];
    let trial = Trial {
        client: member.clone(),
        grants: grants(Credential::Agent, &a.name),
        namespaces: [&own, &other, "kube-system", "fleet", "default"].map(ToString::to_string).into(),
        names: names.map(|name: &str| name.to_owned()).into(),
        all_names,
        served: served(&admin).await,
        admin,
    };
    trial.run().await;

    // What it may do, it can; and by the status of its own Cluster it cannot change what others judge it by.
    let clusters: Api<Cluster> = Api::all(member.clone());
    let own_only = ListParams::default().fields(&format!("metadata.name={}", a.name));
    assert_eq!(clusters.list(&own_only).await.unwrap().items.len(), 1);
    let change = json!({
        "metadata": { "labels": { "fleet-scheduler.io/cluster.region": "mine" } },
        "spec": { "region": "mine" },
        "status": { "autoscaled": true },
    });
    let patched = clusters.patch_status(&a.name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    assert!(!patched.labels().contains_key("fleet-scheduler.io/cluster.region"), "no label by status");
    assert_ne!(patched.spec.region, "mine", "no spec by status");
}

async fn an_init_token(all_names: bool) {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let member = Applicant::new(&fresh("iso-c"));
    member.join(&control_plane.init).await;
    let admin = stage.hub.client.clone();
    let trial = Trial {
        client: daemon_client::token_client(&control_plane.init).unwrap(),
        grants: grants(Credential::InitToken, ""),
        namespaces: [&format!("fleet-c-{}", member.name), "kube-system", "fleet", "default"]
            .map(ToString::to_string)
            .into(),
        names: vec![member.name.clone(), INIT_SECRET.to_owned(), token_secret(&admin).await],
        all_names,
        served: served(&admin).await,
        admin,
    };
    trial.run().await;
}

async fn a_certificate_without_rights(all_names: bool) {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let init = &control_plane.init;
    let admin = stage.hub.client.clone();
    let clusters: Api<Cluster> = Api::all(admin.clone());
    let change = async |name: &str, change: Value| {
        clusters.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    };

    let rekeyed = Applicant::new(&fresh("iso-rekeyed"));
    let old_key = rekeyed.join(init).await;
    change(&rekeyed.name, json!({ "metadata": { "annotations": { ANNOTATION_ALLOW_NEW_KEY: "true" } } })).await;
    rekeyed.with_new_key().join(init).await;

    let deleted = Applicant::new(&fresh("iso-again"));
    let deleted_once = deleted.join(init).await;
    clusters.delete(&deleted.name, &DeleteParams::default()).await.unwrap();
    until_refused(&deleted_once, &deleted.name).await;
    deleted.with_new_key().join(init).await;

    let suspended = Applicant::new(&fresh("iso-suspended"));
    let not_accepted = suspended.join(init).await;
    change(&suspended.name, json!({ "spec": { "accepted": false } })).await;
    until_refused(&not_accepted, &suspended.name).await;

    let revoked = Applicant::new(&fresh("iso-revoked"));
    let key_revoked = revoked.join(init).await;
    change(&revoked.name, json!({ "metadata": { "annotations": { ANNOTATION_KEY_FINGERPRINT: null } } })).await;
    until_refused(&key_revoked, &revoked.name).await;

    let served = served(&admin).await;
    for (applicant, client) in
        [(rekeyed, old_key), (deleted, deleted_once), (suspended, not_accepted), (revoked, key_revoked)]
    {
        let own = format!("fleet-c-{}", applicant.name);
        let trial = Trial {
            client,
            grants: grants(Credential::Everybody, ""),
            namespaces: [&own, "kube-system", "fleet"].map(ToString::to_string).into(),
            names: vec![applicant.name.clone(), format!("fleet:agent:{}", applicant.name), "fleet-agent".to_owned()],
            all_names,
            served: served.clone(),
            admin: admin.clone(),
        };
        trial.run().await;
    }
}

/// Waits until a certificate has no rights on its Cluster any more.
async fn until_refused(client: &Client, name: &str) {
    let clusters: Api<Cluster> = Api::all(client.clone());
    wait(
        "the certificate is refused",
        async || matches!(clusters.get(name).await, Err(kube::Error::Api(status)) if status.code == 403),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_may_do_nothing_beyond_its_own_namespace_and_its_own_cluster() {
    an_agent(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_init_token_may_do_nothing_but_ask() {
    an_init_token(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_whose_rights_were_revoked_may_do_nothing_at_all() {
    a_certificate_without_rights(false).await;
}

mod exhaustive {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_name_makes_a_difference_to_what_a_credential_may_do() {
        an_agent(true).await;
        an_init_token(true).await;
        a_certificate_without_rights(true).await;
    }
}
