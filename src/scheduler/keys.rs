//! `fleet-scheduler keys`: makes the Secrets with keys of a control plane inside its hosting cluster, so that no private
//! key ever leaves that.
//!
//! A Job of the chart runs it where keys are to come from the cluster itself (`pki.source: InCluster`), and a CronJob each
//! week. It makes what is missing and never what exists; certificates that are due, or that lack an address, are issued
//! anew from the authorities that are there. Pods wait for their Secrets by themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Secret, Service};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, ResourceExt as _};
use serde_json::json;

use crate::api::labels::{LABEL_APP_VERSION, LABEL_INSTANCE, LABEL_KEEP, LABEL_PART_OF};
use crate::api::names::{ControlPlaneName, NamespaceName};
use crate::daemon::log::{self, LogFormat};
use crate::k8s::MANAGER;
use crate::pki::secrets::{ETCD_CLAIM, KEPT_SECRET, SECRET_ENTRIES};
use crate::pki::{self, Endpoint, Files, Leaf, Lifetimes, PkiError, San, Subject};

/// How often it begins again where somebody else wrote meanwhile.
const ATTEMPTS: usize = 5;
/// Time between two looks at the Service whose address is awaited.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Annotation on the pod templates of what reads its kubeconfig at start only.
const KEYS_ANNOTATION: &str = "fleet-scheduler.io/keys";

/// Which control plane, and where its API is reached.
#[derive(Debug, Clone, Args)]
pub struct KeysArgs {
    /// Name of the control plane
    #[arg(long)]
    pub name: ControlPlaneName,

    /// Its namespace
    #[arg(long)]
    pub namespace: NamespaceName,

    /// Service version that the Secrets are labelled with
    #[arg(long)]
    pub service_version: String,

    /// Address that kubeconfigs name; without it, the one that Service `apiserver` gets from its load balancer is awaited
    #[arg(long)]
    pub host: Option<San>,

    /// Port that kubeconfigs name
    #[arg(long, default_value_t = 443)]
    pub port: u16,

    /// Further address that the API server's certificate answers for; may be repeated
    #[arg(long = "san")]
    pub sans: Vec<San>,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The hosting cluster does not answer or refuses.
    #[error("the hosting cluster refuses")]
    Api(#[from] kube::Error),
    /// What is there cannot be used.
    #[error(
        "the keys that are there cannot be used; restore them from a backup, because new ones would lock every agent out"
    )]
    Damaged(#[from] PkiError),
    /// The authorities are gone, and something that was made with them is not.
    #[error(
        "Secret {KEPT_SECRET} is gone, and {0} is still there; restore it from a backup, because with new keys neither the data \
         nor an agent could be used"
    )]
    Lost(String),
    /// A Secret of the name is not this control plane's.
    #[error("Secret {0} is not of this control plane; install into another namespace, or remove it")]
    NotOurs(String),
    /// Others write at the same time, again and again.
    #[error("others write the Secrets at the same time")]
    Contended,
}

/// What was done.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Done {
    /// Secrets that were made.
    pub made: Vec<&'static str>,
    /// Secrets whose certificates were issued anew.
    pub renewed: Vec<&'static str>,
}

/// An attempt that has to be made again.
enum Attempt {
    Done(Done),
    /// Somebody else wrote first.
    Again,
}

/// Runs `fleet-scheduler keys` with the rights of its pod.
///
/// # Errors
/// No in-cluster configuration, and [`KeysError`].
pub fn main(format: LogFormat, args: &KeysArgs) -> anyhow::Result<()> {
    log::start(format);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let client = Client::try_from(kube::Config::incluster()?)?;
        anyhow::Ok(run(&client, args).await?)
    })?;
    tracing::info!(made = ?done.made, renewed = ?done.renewed, "keys are complete");
    Ok(())
}

/// Makes what is missing, and renews what is due.
///
/// # Errors
/// [`KeysError`]; nothing that is there was replaced then but certificates that were due.
pub async fn run(client: &Client, args: &KeysArgs) -> Result<Done, KeysError> {
    let host = match &args.host {
        Some(host) => host.clone(),
        None => load_balancer(client, args.namespace.as_str()).await?,
    };
    for _ in 0..ATTEMPTS {
        if let Attempt::Done(done) = attempt(client, args, &host, Timestamp::now()).await? {
            return Ok(done);
        }
    }
    Err(KeysError::Contended)
}

/// The address that the API server's Service gets, however long that takes: the Job's deadline ends it.
async fn load_balancer(client: &Client, namespace: &str) -> Result<San, KeysError> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    loop {
        let service = services.get_opt("apiserver").await?;
        let ingress = service.and_then(|service| service.status?.load_balancer?.ingress).unwrap_or_default();
        let address = ingress.into_iter().find_map(|one| one.hostname.filter(|name| !name.is_empty()).or(one.ip));
        match address {
            Some(address) => return Ok(address.parse()?),
            None => tracing::info!("waiting for the address of Service apiserver"),
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn attempt(client: &Client, args: &KeysArgs, host: &San, now: Timestamp) -> Result<Attempt, KeysError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), args.namespace.as_str());
    let names: BTreeSet<&str> = SECRET_ENTRIES.iter().map(|entry| entry.secret).collect();
    let mut found: BTreeMap<&str, Secret> = BTreeMap::new();
    for name in &names {
        let Some(secret) = secrets.get_opt(name).await? else { continue };
        if secret.labels().get(LABEL_INSTANCE).map(String::as_str) != Some(args.name.as_str()) {
            return Err(KeysError::NotOurs((*name).to_owned()));
        }
        found.insert(name, secret);
    }
    let files = files(&found);
    if !pki::Authorities::any_in(&files) {
        refuse_lost(client, args, &found).await?;
    }
    let completed = pki::ensure(&files, &subject(args, host), now, &Lifetimes::default())?;
    let mut done = Done::default();
    // The authorities first: whoever makes them decides for everybody.
    for name in std::iter::once(KEPT_SECRET).chain(names.into_iter().filter(|name| *name != KEPT_SECRET)) {
        let data = data_of(name, &completed.files);
        let known = found.get(name);
        if known.is_some_and(|known| holds(known, &data)) {
            continue;
        }
        let body = secret(args, name, data, known);
        let written = match known {
            None => secrets.create(&PostParams::default(), &body).await,
            // What `template` printed before is immutable, and can only be made again.
            Some(known) if known.immutable == Some(true) => {
                let uid = Some(Preconditions { uid: known.uid(), resource_version: None });
                match secrets.delete(name, &DeleteParams { preconditions: uid, ..DeleteParams::default() }).await {
                    Ok(_) => secrets.create(&PostParams::default(), &body).await,
                    Err(error) => Err(error),
                }
            }
            Some(_) => secrets.replace(name, &PostParams::default(), &body).await,
        };
        match written {
            Ok(_) if known.is_some() => done.renewed.push(name),
            Ok(_) => done.made.push(name),
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => return Ok(Attempt::Again),
            Err(error) => return Err(error.into()),
        }
    }
    roll(client, args, &done, &completed.files).await?;
    Ok(Attempt::Done(done))
}

/// The files that the Secrets hold.
fn files(found: &BTreeMap<&str, Secret>) -> Files {
    let mut files = Files::new();
    for entry in SECRET_ENTRIES {
        let bytes = found.get(entry.secret).and_then(|secret| secret.data.as_ref()?.get(entry.key));
        if let Some(text) = bytes.and_then(|bytes| String::from_utf8(bytes.0.clone()).ok()) {
            files.insert(entry.file, text);
        }
    }
    files
}

/// Refuses to make authorities where something of earlier ones is left.
async fn refuse_lost(client: &Client, args: &KeysArgs, found: &BTreeMap<&str, Secret>) -> Result<(), KeysError> {
    if let Some(name) = found.keys().next() {
        return Err(KeysError::Lost(format!("Secret {name}")));
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), args.namespace.as_str());
    let claim = format!("{ETCD_CLAIM}0");
    // One that is not bound holds nothing yet: it waits for its pod, as that waits for the keys.
    let bound =
        claims.get_opt(&claim).await?.and_then(|claim| claim.status?.phase).is_some_and(|phase| phase == "Bound");
    if bound { Err(KeysError::Lost(format!("PersistentVolumeClaim {claim}"))) } else { Ok(()) }
}

fn subject(args: &KeysArgs, host: &San) -> Subject {
    Subject {
        control_plane: args.name.to_string(),
        namespace: args.namespace.to_string(),
        public: Endpoint { host: host.clone(), port: args.port },
        internal: Subject::internal_endpoint(args.namespace.as_str()),
        extra_sans: args.sans.clone(),
    }
}

/// What a Secret has to hold.
fn data_of(name: &str, files: &Files) -> BTreeMap<String, ByteString> {
    let text = |file: &str| ByteString(files.get(file).unwrap_or_default().as_bytes().to_vec());
    let own = SECRET_ENTRIES.iter().filter(|entry| entry.secret == name);
    let mut data: BTreeMap<String, ByteString> = own.map(|entry| (entry.key.to_owned(), text(entry.file))).collect();
    if name == "etcd-certs" {
        data.insert("etcd-ca.crt".to_owned(), text("etcd-ca.crt"));
    }
    data
}

fn holds(secret: &Secret, data: &BTreeMap<String, ByteString>) -> bool {
    let known = secret.data.as_ref();
    data.iter().all(|(key, value)| known.is_some_and(|known| known.get(key) == Some(value)))
}

/// The Secret as it is written: what others added to one that is there stays.
fn secret(args: &KeysArgs, name: &str, data: BTreeMap<String, ByteString>, known: Option<&Secret>) -> Secret {
    let component = match name {
        KEPT_SECRET => "pki",
        "etcd-certs" => "etcd",
        "apiserver-certs" => "apiserver",
        "controller-manager-kubeconfig" => "kube-controller-manager",
        "fleet-scheduler-kubeconfig" => "fleet-scheduler",
        _ => "admin",
    };
    let mut body = known.cloned().unwrap_or_default();
    let is_remade = body.immutable == Some(true);
    let mut labels: BTreeMap<String, String> = body.metadata.labels.take().unwrap_or_default();
    labels.extend(
        [
            ("app.kubernetes.io/name", component),
            ("app.kubernetes.io/component", component),
            (LABEL_INSTANCE, args.name.as_str()),
            (LABEL_PART_OF, "fleet"),
            ("app.kubernetes.io/managed-by", MANAGER),
            (LABEL_APP_VERSION, &args.service_version),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    if name == KEPT_SECRET {
        labels.insert(LABEL_KEEP.to_owned(), "data".to_owned());
    }
    body.metadata.name = Some(name.to_owned());
    body.metadata.labels = Some(labels);
    body.metadata.managed_fields = None;
    if is_remade {
        body.metadata.uid = None;
        body.metadata.resource_version = None;
    }
    body.immutable = None;
    body.type_ = Some("Opaque".to_owned());
    body.data.get_or_insert_default().extend(data);
    body
}

/// Has what reads its kubeconfig at start only begin anew with one that was renewed. Everything else reads its files again.
async fn roll(client: &Client, args: &KeysArgs, done: &Done, files: &Files) -> Result<(), KeysError> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), args.namespace.as_str());
    for (secret, leaf, deployment) in [
        ("controller-manager-kubeconfig", Leaf::ControllerManager, "kube-controller-manager"),
        ("fleet-scheduler-kubeconfig", Leaf::Scheduler, "fleet-scheduler"),
    ] {
        if !done.renewed.contains(&secret) {
            continue;
        }
        let pki::LeafStore::Kubeconfig(file) = leaf.store() else { continue };
        let digest = crate::api::digest::full(files.get(file).unwrap_or_default().as_bytes());
        let annotations = json!({ KEYS_ANNOTATION: digest });
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        match deployments.patch(deployment, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => {}
            // It is still to come, and will read what there is.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use serde_json::Value;

    use super::*;

    type Meanwhile = Box<dyn FnOnce(&mut BTreeMap<String, Value>) + Send>;

    /// A namespace, by the paths of its objects; what is written gets a version, and has to name it.
    #[derive(Default)]
    struct Namespace {
        objects: BTreeMap<String, Value>,
        version: u64,
        /// Runs once before the next creation, as somebody else.
        meanwhile: Option<Meanwhile>,
        patched: Vec<String>,
    }

    impl Namespace {
        fn answer(&mut self, method: &str, path: &str, body: Value) -> (u16, Value) {
            let status = |code: u16, reason: &str| {
                (
                    code,
                    json!({"kind": "Status", "status": "Failure", "reason": reason, "message": reason, "code": code}),
                )
            };
            self.version += 1;
            match method {
                "GET" => self.objects.get(path).map_or(status(404, "NotFound"), |found| (200, found.clone())),
                "POST" => {
                    if let Some(meanwhile) = self.meanwhile.take() {
                        meanwhile(&mut self.objects);
                    }
                    let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
                    if self.objects.contains_key(&path) {
                        return status(409, "AlreadyExists");
                    }
                    self.store(path, body, 201)
                }
                "PUT" => {
                    let known = &self.objects[path];
                    if known["immutable"] == true && known["data"] != body["data"] {
                        return status(422, "Invalid");
                    }
                    if known["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
                        return status(409, "Conflict");
                    }
                    self.store(path.to_owned(), body, 200)
                }
                "PATCH" => {
                    self.patched.push(path.to_owned());
                    status(404, "NotFound")
                }
                _ => match self.objects.remove(path) {
                    Some(gone) => (200, gone),
                    None => status(404, "NotFound"),
                },
            }
        }

        fn store(&mut self, path: String, mut body: Value, code: u16) -> (u16, Value) {
            body["metadata"]["resourceVersion"] = self.version.to_string().into();
            body["metadata"]["uid"] = format!("uid-{}", self.version).into();
            self.objects.insert(path, body.clone());
            (code, body)
        }

        fn data(&self, name: &str, key: &str) -> String {
            let data = &self.objects[&secret_path(name)]["data"][key];
            String::from_utf8(STANDARD.decode(data.as_str().unwrap()).unwrap()).unwrap()
        }
    }

    fn secret_path(name: &str) -> String {
        format!("/api/v1/namespaces/fleet/secrets/{name}")
    }

    fn client(namespace: &Arc<Mutex<Namespace>>) -> Client {
        let namespace = Arc::clone(namespace);
        let serve = move |request: http::Request<Body>| {
            let namespace = Arc::clone(&namespace);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.unwrap().to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, answer) = namespace.lock().unwrap().answer(parts.method.as_str(), parts.uri.path(), body);
                http::Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()))
            }
        };
        Client::new(tower::service_fn(serve), "fleet")
    }

    fn args(sans: &[&str]) -> KeysArgs {
        KeysArgs {
            name: "demo".parse().unwrap(),
            namespace: "fleet".parse().unwrap(),
            service_version: "v0.6.1".to_owned(),
            host: Some("192.0.2.10".parse().unwrap()),
            port: 32222,
            sans: sans.iter().map(|san| san.parse().unwrap()).collect(),
        }
    }

    async fn run_on(namespace: &Arc<Mutex<Namespace>>, sans: &[&str]) -> Result<Done, KeysError> {
        run(&client(namespace), &args(sans)).await
    }

    #[tokio::test]
    async fn what_is_missing_is_made_once_and_then_nothing_is_written() {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        let first = run_on(&namespace, &[]).await.unwrap();
        assert_eq!((first.made.len(), first.renewed.len()), (6, 0), "{first:?}");
        assert_eq!(first.made[0], KEPT_SECRET);
        let before = namespace.lock().unwrap().objects.clone();
        let kept = &before[&secret_path(KEPT_SECRET)]["metadata"]["labels"];
        assert_eq!((&kept[LABEL_KEEP], &kept[LABEL_INSTANCE]), (&json!("data"), &json!("demo")));
        assert_eq!(run_on(&namespace, &[]).await.unwrap(), Done::default());
        assert_eq!(namespace.lock().unwrap().objects, before);
        let kubeconfig = namespace.lock().unwrap().data("fleet-kubeconfig", "kubeconfig");
        assert!(kubeconfig.contains("https://192.0.2.10:32222"), "{kubeconfig}");
    }

    #[tokio::test]
    async fn a_new_address_renews_the_leaves_that_lack_it_and_no_authority() {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        run_on(&namespace, &[]).await.unwrap();
        let authority = namespace.lock().unwrap().data(KEPT_SECRET, "ca.crt");
        // As `template` prints it.
        namespace.lock().unwrap().objects.get_mut(&secret_path("apiserver-certs")).unwrap()["immutable"] = true.into();
        let done = run_on(&namespace, &["fleet.example.com"]).await.unwrap();
        assert_eq!((done.made.as_slice(), done.renewed.as_slice()), (&[][..], &["apiserver-certs"][..]));
        assert_eq!(namespace.lock().unwrap().data(KEPT_SECRET, "ca.crt"), authority);
        assert!(namespace.lock().unwrap().patched.is_empty(), "the API server reads its files again");
    }

    #[tokio::test]
    async fn a_lost_leaf_is_made_again_and_a_damaged_kubeconfig_is_renewed_with_its_reader_begun_anew() {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        run_on(&namespace, &[]).await.unwrap();
        {
            let mut there = namespace.lock().unwrap();
            there.objects.remove(&secret_path("etcd-certs"));
            let path = secret_path("controller-manager-kubeconfig");
            there.objects.get_mut(&path).unwrap()["data"]["kubeconfig"] = STANDARD.encode("no").into();
        }
        let done = run_on(&namespace, &[]).await.unwrap();
        assert_eq!(done.made, ["etcd-certs"]);
        assert_eq!(done.renewed, ["controller-manager-kubeconfig"]);
        let patched = &namespace.lock().unwrap().patched;
        assert_eq!(patched, &["/apis/apps/v1/namespaces/fleet/deployments/kube-controller-manager"]);
    }

    #[tokio::test]
    async fn lost_authorities_are_never_made_anew() {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        run_on(&namespace, &[]).await.unwrap();
        namespace.lock().unwrap().objects.remove(&secret_path(KEPT_SECRET));
        let before = namespace.lock().unwrap().objects.clone();
        let lost = run_on(&namespace, &[]).await.unwrap_err();
        assert!(lost.to_string().contains("apiserver-certs is still there"), "{lost}");
        assert_eq!(namespace.lock().unwrap().objects, before);

        let claim = "/api/v1/namespaces/fleet/persistentvolumeclaims/etcd-data-etcd-0";
        for (phase, is_lost) in [("Pending", false), ("Bound", true)] {
            let namespace = Arc::new(Mutex::new(Namespace::default()));
            let bound = json!({"metadata": {"name": "etcd-data-etcd-0"}, "status": {"phase": phase}});
            namespace.lock().unwrap().objects.insert(claim.to_owned(), bound);
            assert_eq!(run_on(&namespace, &[]).await.is_err(), is_lost, "{phase}");
        }
    }

    #[tokio::test]
    async fn of_two_at_once_one_makes_the_authorities() {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        let other = Arc::new(Mutex::new(Namespace::default()));
        run_on(&other, &[]).await.unwrap();
        let theirs = other.lock().unwrap().objects[&secret_path(KEPT_SECRET)].clone();
        let authority = other.lock().unwrap().data(KEPT_SECRET, "ca.crt");
        namespace.lock().unwrap().meanwhile = Some(Box::new(move |objects| {
            objects.insert(secret_path(KEPT_SECRET), theirs);
        }));
        let done = run_on(&namespace, &[]).await.unwrap();
        assert_eq!(done.made.len(), 5, "{done:?}");
        assert_eq!(namespace.lock().unwrap().data(KEPT_SECRET, "ca.crt"), authority);
    }

    #[tokio::test]
    async fn a_secret_of_somebody_else_is_left_alone() {
        let namespace = Arc::new(Mutex::new(Namespace::default()));
        let theirs = json!({"metadata": {"name": "etcd-certs", "labels": {LABEL_INSTANCE: "other"}}});
        namespace.lock().unwrap().objects.insert(secret_path("etcd-certs"), theirs);
        let refused = run_on(&namespace, &[]).await.unwrap_err();
        assert!(matches!(&refused, KeysError::NotOurs(name) if name == "etcd-certs"), "{refused}");
        assert_eq!(namespace.lock().unwrap().objects.len(), 1);
    }
}
