//! Where the keys of a control plane come from: made inside the cluster, or there beforehand (value `pki.source`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use fleetctl::certificates::complete::KeyTarget;
use fleetctl::pki::secrets::{SECRET_ENTRIES, collect_key_set};
use fleetctl::pki::{Choice, Files, Lifetimes};
use jiff::Timestamp;

use crate::member::Member;
use crate::support::{KEY_SECRETS, Site, eventually};

type Keys = [BTreeMap<String, String>; 6];

fn keys(site: &Site) -> Keys {
    KEY_SECRETS.map(|name| site.secret(name))
}

fn pods(site: &Site) -> String {
    let path = r"jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{'\n'}{end}";
    site.kubectl(&["-n", "fleet", "get", "pods", "-l", "app.kubernetes.io/name!=keys", "-o", path])
}

pub(crate) fn healthy(site: &Site) {
    eventually("a healthy control plane", || site.fleetctl(&["status", "demo"]).code == Some(0));
}

/// Runs the CronJob now; gives whether it succeeded, and its log.
fn run_now(site: &Site, name: &str) -> (bool, String) {
    site.kubectl(&["-n", "fleet", "create", "job", name, "--from=cronjob/fleet-keys"]);
    wait_for_job(site, name)
}

/// Waits for the end of a Job, and deletes it; gives whether it succeeded, and its log.
fn wait_for_job(site: &Site, name: &str) -> (bool, String) {
    let field = |path: &str| site.kubectl(&["-n", "fleet", "get", "job", name, "-o", &format!("jsonpath={{{path}}}")]);
    let of_job = format!("job-name={name}");
    let logs = ["-n", "fleet", "logs", "-l", &of_job, "--tail=-1"];
    let mut ended = (false, String::new());
    eventually("the end of the Job", || {
        // The log is empty before a container begins, and again while it waits to be started anew: an error is kept when seen.
        let log = site.bed.kubectl(site.cluster, &logs).unwrap_or_default();
        ended = (field(".status.succeeded") == "1", log);
        ended.0 || ended.1.contains("ERROR")
    });
    site.kubectl(&["-n", "fleet", "delete", "job", name, "--wait=true"]);
    ended
}

#[test]
fn keys_that_the_cluster_makes_are_made_once_and_never_leave_it() {
    let site = Site::on("host");
    let before = site.dump();
    let flags = ["--set", "pki.source=InCluster", "--set", "exposure.type=LoadBalancer"];
    let printed = site.fleetctl(&[&["template", "cp", "demo"], &flags[..]].concat());
    let manifests = printed.succeeds();
    assert!(!manifests.contains("kind: Secret") && manifests.contains("kind: CronJob"), "{manifests}");
    assert!(printed.stderr.contains("a Job generates them"), "{printed:?}");
    assert!(!site.fleet_folder().exists(), "nothing is written on this machine");

    site.apply(manifests);
    healthy(&site);
    let made = keys(&site);
    site.fleetctl(&["kubeconfig", "demo"]).succeeds();
    let of_service = "jsonpath={.status.loadBalancer.ingress[0].ip}";
    let address = site.kubectl(&["-n", "fleet", "get", "service", "apiserver", "-o", of_service]);
    let server = format!("https://{address}:443");
    assert!(std::fs::read_to_string(site.hub_kubeconfig()).unwrap().contains(&server));
    // What agents start from has the address that only the load balancer knew.
    let init = ["-n", "fleet", "get", "secret", "fleet-cluster-init-kubeconfig", "-o", "json"];
    let init: Value = serde_json::from_str(&site.hub(&init)).unwrap();
    let init = STANDARD.decode(init["data"]["kubeconfig"].as_str().unwrap()).unwrap();
    assert!(String::from_utf8(init).unwrap().contains(&server));
    let listed = site.fleetctl(&["status", "demo"]);
    assert!(listed.succeeds().contains("12 valid"), "{listed:?}");

    // Whoever applies it again, from wherever, changes no key and no pod.
    let running = pods(&site);
    site.apply(manifests);
    assert_eq!(site.apply_on_server(manifests), "");
    assert!(keys(&site) == made, "keys were replaced");
    // An install goes on with what manifests have made.
    let adopting = site.install(&[&flags[..], &["--adopt"]].concat());
    adopting.succeeds();
    assert!(!adopting.stderr.contains("claim templates"), "manifests and installs have the same: {}", adopting.stderr);
    let again = site.install(&flags);
    assert!(again.succeeds().contains("Nothing to change"), "{again:?}");
    assert!(keys(&site) == made, "keys were replaced");
    assert_eq!(pods(&site), running, "a pod was made anew");
    site.assert_no_secret_was_shown();

    // A lost certificate is made again, by the same authority; lost authorities are not.
    site.kubectl(&["-n", "fleet", "delete", "secret", "etcd-certs"]);
    let (succeeded, log) = run_now(&site, "once-more");
    assert!(succeeded, "{log}");
    assert_eq!(site.secret("etcd-certs")["etcd-ca.crt"], made[1]["etcd-ca.crt"]);
    let mut kept: Value =
        serde_json::from_str(&site.kubectl(&["-n", "fleet", "get", "secret", "fleet-pki", "-o", "json"])).unwrap();
    site.kubectl(&["-n", "fleet", "delete", "secret", "fleet-pki"]);
    let (succeeded, log) = run_now(&site, "without-authorities");
    assert!(!succeeded && log.contains("Secret fleet-pki is missing"), "{log}");
    for field in ["uid", "resourceVersion", "managedFields", "creationTimestamp"] {
        kept["metadata"].as_object_mut().unwrap().remove(field);
    }
    site.apply(&kept.to_string());
    assert!(site.secret("fleet-pki") == made[0]);

    // The keys stay when somebody else makes them from now on.
    for source in ["Installer", "InCluster"] {
        let set = format!("pki.source={source}");
        site.install(&["--reuse-values", "--yes", "--set", &set, "--adopt"]).succeeds();
        let has_job = !site.kubectl(&["-n", "fleet", "get", "jobs", "-o", "name"]).is_empty();
        assert_eq!(has_job, source == "InCluster");
        assert_eq!(site.kubectl(&["-n", "fleet", "get", "cronjobs", "-o", "name"]), "cronjob.batch/fleet-keys\n");
        assert!(site.secret("fleet-pki") == made[0], "{source}: the authorities were replaced");
    }
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
    // The namespace was there before the install.
    let kinds =
        "all,cronjobs,secrets,configmaps,persistentvolumeclaims,serviceaccounts,roles,rolebindings,networkpolicies";
    let left = site.kubectl(&["-n", "fleet", "get", kinds, "-o", "name"]);
    assert_eq!(left, "configmap/kube-root-ca.crt\nserviceaccount/default\n");
    site.kubectl(&["delete", "namespace", "fleet", "--wait=true"]);
    site.assert_same_as(&before);
}

/// Runs the CronJob now with further arguments.
pub(crate) fn run_with_arguments(site: &Site, name: &str, arguments: &[&str]) -> (bool, String) {
    let create = ["-n", "fleet", "create", "job", name, "--from=cronjob/fleet-keys", "--dry-run=client", "-o", "json"];
    let mut job: Value = serde_json::from_str(&site.kubectl(&create)).unwrap();
    let given = job["spec"]["template"]["spec"]["containers"][0]["args"].as_array_mut().unwrap();
    given.extend(arguments.iter().map(|argument| Value::from(*argument)));
    site.apply(&job.to_string());
    wait_for_job(site, name)
}

#[test]
fn renewed_certificates_are_served_without_a_restart() {
    let site = Site::on("current");
    let flags = [&["--preset", "nodeport"][..], site.version()].concat();
    site.install(&flags).succeeds();
    let (before, first) = (pods(&site), keys(&site));
    let objects = site.kubectl(&["-n", "fleet", "get", "statefulsets,services,configmaps", "-o", "name"]);
    // Asked throughout: none may fail.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let (renewed, asked) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut asked = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                site.hub(&["get", "--raw", "/readyz"]);
                asked += 1;
            }
            asked
        });
        let renewed = run_with_arguments(&site, "short", &["--leaf-lifetime=600s", "--renew-before=366d"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        (renewed, asking.join().unwrap())
    });
    assert!(renewed.0 && asked > 0, "{renewed:?}");
    let after = keys(&site);
    assert!(after[0] == first[0], "the CAs stay");
    for (name, (now, former)) in KEY_SECRETS.iter().zip(after.iter().zip(&first)).skip(1) {
        assert!(now != former, "{name} was not renewed");
    }
    // The Job fails unless every pod serves what is in the Secrets; only the controller manager has other pods.
    let other: Vec<String> = pods(&site).lines().filter(|pod| !before.contains(pod)).map(str::to_owned).collect();
    assert!(other.iter().all(|pod| pod.starts_with("kube-controller-manager")), "{other:?}");
    assert_eq!(site.kubectl(&["-n", "fleet", "get", "statefulsets,services,configmaps", "-o", "name"]), objects);
    let map = ["-n", "fleet", "get", "configmap", "fleet-certificates", "-o", "json"];
    let map: Value = serde_json::from_str(&site.kubectl(&map)).unwrap();
    let listed = map["data"]["certificates.json"].as_str().unwrap();
    assert!(listed.contains("Pod etcd-0:2379") && listed.contains("Pod apiserver-"), "{listed}");
    let status = site.fleetctl(&["status", "demo"]);
    assert!(!status.stdout.contains("were changed"), "what a renewal wrote is no drift: {status:?}");
    // What ends within minutes is due, and is not after a renewal.
    let limit = ["certs", "status", "demo", "--fail-under", "1d", "-o", "json"];
    let listed: Value = serde_json::from_str(&site.fleetctl(&limit).stdout).unwrap();
    let of_pod = listed.as_array().unwrap().iter().find(|row| row["holder"] == "Pod etcd-0:2379").unwrap();
    assert_eq!(of_pod["state"], "soon", "{listed}");
    assert_eq!(site.fleetctl(&limit).code, Some(7));
    assert!(site.fleetctl(&["certs", "renew", "demo"]).succeeds().contains("apiserver.crt"));
    site.fleetctl(&limit).succeeds();
    assert_eq!(site.fleetctl(&["certs", "renew", "demo"]).succeeds(), "Nothing is due.\n");
    // etcd is reached by port-forward, over which its renewed certificate is verified.
    let etcd = site.fleetctl(&["etcd", "status", "demo", "-o", "json"]);
    let etcd: Value = serde_json::from_str(etcd.succeeds()).unwrap();
    let member = &etcd["members"][0];
    assert!(member["lists"][0]["id"] == member["status"]["leader"] && member["hash"].is_object(), "{etcd}");
    assert!(member["status"]["version"] == "3.5.35" && etcd["quotaBytes"].is_u64(), "{etcd}");
    // The next install takes the Secrets as they are, but for what is due.
    site.install(&flags).succeeds();
    assert!(keys(&site)[0] == first[0]);
    healthy(&site);
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}

/// The key set in the Secrets.
fn key_set(site: &Site) -> Files {
    let found: BTreeMap<&str, BTreeMap<String, String>> =
        KEY_SECRETS.into_iter().map(|name| (name, site.secret(name))).collect();
    collect_key_set(|entry| Some(found[entry.secret].get(entry.key)?.as_bytes()))
}

/// Replaces the certificates by others of the same keys of CAs that have ended, and restarts everything, as if the control
/// plane had been asleep for long.
fn let_certificates_end(site: &Site, with_authorities: bool) {
    let files = key_set(site);
    let target = KeyTarget::from_present(&"demo".parse().unwrap(), &"fleet".parse().unwrap(), &files, Choice::All);
    let day = std::time::Duration::from_secs(24 * 3600);
    let renew_authority_before = if with_authorities { std::time::Duration::MAX } else { std::time::Duration::ZERO };
    let lifetimes = Lifetimes { authority: 2 * day, leaf: day, renew_authority_before, ..Lifetimes::default() };
    let target = KeyTarget { lifetimes, ..target.unwrap() };
    let ended = target.complete(&files, Timestamp::now() - 30 * day).unwrap().files;
    for name in KEY_SECRETS {
        let own = SECRET_ENTRIES.iter().filter(|entry| entry.secret == name);
        let mut data: BTreeMap<&str, String> =
            own.map(|entry| (entry.key, STANDARD.encode(ended.get(entry.file).unwrap()))).collect();
        if name == "etcd-certs" {
            data.insert("etcd-ca.crt", STANDARD.encode(ended.get("etcd-ca.crt").unwrap()));
        }
        let patch = serde_json::json!({ "data": data }).to_string();
        site.kubectl(&["-n", "fleet", "patch", "secret", name, "--type=merge", "-p", &patch]);
    }
    site.kubectl(&["-n", "fleet", "delete", "pods", "-l", "app.kubernetes.io/part-of=fleet", "--wait=true"]);
}

#[test]
fn what_has_expired_is_brought_back_by_one_command_and_agents_need_no_touch() {
    let site = Site::with("current", "member-2");
    let member = Member::beside(&site, "member-2");
    let flags = [&["--preset", "nodeport"][..], site.version()].concat();
    site.install(&flags).succeeds();
    member.kubectl(&["create", "namespace", "fleet"]);
    member.install(&[&["--control-plane", "demo"][..], site.version()].concat()).succeeds();
    let agent = [
        "-n",
        "fleet",
        "get",
        "pods",
        "-l",
        "app.kubernetes.io/name=fleet-agent",
        "-o",
        "jsonpath={.items[*].metadata.uid}",
    ];
    let same_agent = member.kubectl(&agent);
    let review = site.home().join("review.yaml");
    std::fs::write(&review, "apiVersion: authentication.k8s.io/v1\nkind: SelfSubjectReview\n").unwrap();
    let review = review.to_str().unwrap().to_owned();
    let user = |site: &Site| site.hub(&["create", "-f", &review, "-o", "jsonpath={.status.userInfo.username}"]);
    let operator = user(&site);
    let authorities = site.secret("fleet-pki");

    for with_authorities in [false, true] {
        let_certificates_end(&site, with_authorities);
        assert!(site.asks_hub(&["get", "--raw", "/readyz"]).is_err(), "nothing is served");
        let limit = site.fleetctl(&["certs", "status", "demo"]);
        assert_eq!(limit.code, Some(7), "{limit:?}");
        let planned = site.fleetctl(&["certs", "renew", "demo", "--recover", "--dry-run"]);
        assert_eq!(planned.succeeds().contains("signed again"), with_authorities, "{planned:?}");

        let recovered = site.fleetctl(&["certs", "renew", "demo", "--recover"]);
        assert!(recovered.succeeds().contains("Restarted: etcd, apiserver"), "{recovered:?}");
        assert!(recovered.took.as_secs() <= 300, "{recovered:?}");
        healthy(&site);
        assert_eq!(user(&site), operator, "bindings name the operator's user");
        eventually("the agent to be Ready", || member.row()["READY"] == "True");
        assert_eq!(member.kubectl(&agent), same_agent, "the agent was not touched");
        let again = site.fleetctl(&["certs", "renew", "demo", "--recover"]);
        assert_eq!(again.succeeds(), "Nothing is due.\n");
    }
    let now = site.secret("fleet-pki");
    for (file, text) in &authorities {
        let is_certificate = file.ends_with("ca.crt");
        assert_eq!(now[file] != *text, is_certificate, "keys are kept, and CAs are signed again: {file}");
    }
    site.assert_no_secret_was_shown();
    member.uninstall(&[]).succeeds();
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
}

mod exhaustive {
    use super::*;

    /// Three installs. The judgement of such keys is a unit test in every run.
    #[test]
    fn keys_that_are_there_beforehand_are_judged_before_anything_is_written_and_stay() {
        let site = Site::on("current");
        let host = site.bed.node_ip(site.cluster).unwrap();
        let host = format!("exposure.host={host}");
        let flags = [
            "--preset",
            "nodeport",
            "--set",
            &host,
            "--set",
            "pki.source=Existing",
            "--set",
            "pki.existingSecret=my-keys",
        ];
        let flags = [&flags[..], site.version()].concat();
        let folder = site.home().join("keys").display().to_string();
        site.kubectl(&["create", "namespace", "fleet"]);
        let before = site.dump();
        site.install(&flags).fails(6, &["Secret fleet/my-keys with the keys does not exist", "--pki FOLDER"]);

        let printed = site.fleetctl(&[&["template", "cp", "demo", "--pki", &folder], &flags[..]].concat());
        assert!(!printed.succeeds().contains("kind: Secret"), "{printed:?}");
        let command = format!("kubectl -n fleet create secret generic my-keys --from-file={folder}");
        assert!(printed.stderr.contains(&command), "{printed:?}");
        // As the output says.
        site.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());
        let wrong = site.install(&[&flags[..], &["--set", "exposure.host=192.0.2.1"]].concat());
        wrong.fails(6, &["`apiserver.crt`: it has no SAN for 192.0.2.1", "nothing was written"]);
        let given = site.secret("my-keys");
        site.kubectl(&["-n", "fleet", "delete", "secret", "my-keys"]);
        site.assert_same_as(&before);
        site.kubectl(&command.split(' ').skip(1).collect::<Vec<_>>());

        site.install(&flags).succeeds();
        let secrets = site.kubectl(&["-n", "fleet", "get", "secrets", "-o", "name"]);
        assert!(KEY_SECRETS.iter().all(|name| !secrets.contains(name)), "{secrets}");
        assert!(site.fleetctl(&["status", "demo"]).succeeds().contains("12 valid"));
        std::fs::remove_file(site.hub_kubeconfig()).unwrap();
        site.fleetctl(&["kubeconfig", "demo"]).succeeds();
        assert!(site.hub(&["get", "crd", "-o", "name"]).contains("clusters.cluster.fleet-scheduler.io"));
        let again = site.install(&[&["--reuse-values", "--yes"], site.version()].concat());
        assert!(again.succeeds().contains("Nothing to change"), "{again:?}");
        // Manifests with the keys of another machine are the same manifests.
        let elsewhere = site.home().join("elsewhere").display().to_string();
        let others = site.fleetctl(&[&["template", "cp", "demo", "--pki", &elsewhere], &flags[..]].concat());
        assert_eq!(others.succeeds(), printed.succeeds());
        let running = pods(&site);
        // The namespace stays that of who made it.
        let documents = others.succeeds().split("---\n").filter(|document| !document.contains("kind: Namespace"));
        assert_eq!(site.apply_on_server(&documents.collect::<Vec<_>>().join("---\n")), "");
        assert_eq!(pods(&site), running, "a pod was made anew");

        site.fleetctl(&["uninstall", "cp", "demo", "--yes"]).succeeds();
        site.install(&flags).succeeds();
        site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
        assert!(site.secret("my-keys") == given, "it is not ours to change");
        site.kubectl(&["-n", "fleet", "delete", "secret", "my-keys"]);
        site.assert_same_as(&before);
    }

    /// Every run has the renewal by the cluster itself.
    #[test]
    fn a_renewal_from_this_machine_changes_the_keys_alone() {
        let site = Site::on("current");
        let flags = [&["--preset", "nodeport", "--set", "pki.renewal=Manual"][..], site.version()].concat();
        site.install(&flags).succeeds();
        let relevant = |site: &Site| -> BTreeMap<String, Value> {
            let kinds =
                "statefulsets,deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies";
            let all: Value = serde_json::from_str(&site.kubectl(&["-n", "fleet", "get", kinds, "-o", "json"])).unwrap();
            let items =
                all["items"].as_array().unwrap().iter().filter(|item| item["metadata"]["name"] != "fleet-certificates");
            let kept = items.map(|item| {
                let mut spec = serde_json::json!({"spec": item["spec"], "data": item["data"], "rules": item["rules"]});
                if let Some(annotations) = spec.pointer_mut("/spec/template/metadata/annotations") {
                    annotations.as_object_mut().unwrap().remove("fleet-scheduler.io/keys");
                }
                (format!("{}/{}", item["kind"], item["metadata"]["name"]), spec)
            });
            kept.collect()
        };
        let (before, first) = (relevant(&site), keys(&site));
        assert_eq!(site.fleetctl(&["certs", "renew", "demo"]).succeeds(), "Nothing is due.\n");
        assert!(keys(&site) == first, "nothing was due");
        let renewed = site.fleetctl(&["certs", "renew", "demo", "--all"]);
        assert!(renewed.succeeds().contains("Restarted: kube-controller-manager"), "{renewed:?}");
        let after = keys(&site);
        assert!(after[0] == first[0] && after[1..].iter().zip(&first[1..]).all(|(now, former)| now != former));
        assert_eq!(relevant(&site), before);
        // The kubeconfig on this machine was replaced, and works.
        site.hub(&["get", "--raw", "/readyz"]);
        let only = site.fleetctl(&["certs", "renew", "demo", "--only", "apiserver.crt"]);
        assert_eq!(only.succeeds().lines().next(), Some("Renewed: apiserver.crt"));
        site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
    }
}
