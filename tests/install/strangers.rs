//! People of the hosting cluster who are nobody's operator: what a control plane there gives them, by discovery.

use std::path::PathBuf;
use std::process::{Command, Output};

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::support::Site;

/// Somebody with a kubeconfig of their own.
struct Stranger {
    kubeconfig: PathBuf,
    kubectl: PathBuf,
}

impl Stranger {
    /// A service account of the hosting cluster with a role in its namespace.
    fn new(site: &Site, name: &str, namespace: &str, role: &str) -> Self {
        let kubeconfig = site.home().join(name);
        std::fs::copy(site.bed.kubeconfig(site.cluster).unwrap(), &kubeconfig).unwrap();
        let stranger = Self { kubeconfig, kubectl: site.bed.kubectl_path().unwrap() };
        site.kubectl(&["-n", namespace, "create", "serviceaccount", name]);
        let who = format!("--serviceaccount={namespace}:{name}");
        site.kubectl(&["-n", namespace, "create", "rolebinding", name, "--clusterrole", role, &who]);
        let token = site.kubectl(&["-n", namespace, "create", "token", name]);
        stranger.asks(&["config", "set-credentials", name, "--token", token.trim()]);
        stranger.asks(&["config", "set-context", "--current", "--user", name]);
        stranger
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(&self.kubectl).arg("--kubeconfig").arg(&self.kubeconfig).args(args).output().unwrap()
    }

    /// What it is answered; `None` where it is refused. Anything else is an error of the test.
    fn asks(&self, args: &[&str]) -> Option<String> {
        let output = self.run(args);
        let said = String::from_utf8(output.stderr).unwrap();
        let refused = ["(Forbidden)", "(Unauthorized)"].iter().any(|word| said.contains(word));
        assert!(output.status.success() || refused, "{args:?}: {said}");
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    }

    /// All that it may do in these namespaces, as the API server sums it up.
    fn rights(&self, namespaces: &[&str]) -> Vec<String> {
        namespaces.iter().map(|namespace| self.asks(&["auth", "can-i", "--list", "-n", namespace]).unwrap()).collect()
    }
}

/// The door of a control plane, to which no kubectl goes without a credential: it asks for one first.
struct Door(Kubeconfig);

impl Door {
    fn of(site: &Site) -> Self {
        let mut kubeconfig = Kubeconfig::read_from(site.hub_kubeconfig()).unwrap();
        kubeconfig.auth_infos.iter_mut().for_each(|user| user.auth_info = Some(AuthInfo::default()));
        Self(kubeconfig)
    }

    /// The status code of a GET, with a token or without.
    fn knock(&self, path: &str, token: Option<&str>) -> u16 {
        let mut kubeconfig = self.0.clone();
        let user = AuthInfo { token: token.map(|token| token.to_owned().into()), ..AuthInfo::default() };
        kubeconfig.auth_infos.iter_mut().for_each(|known| known.auth_info = Some(user.clone()));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
            let client = Client::try_from(config).unwrap();
            let request = http::Request::get(path).body(Vec::new()).unwrap();
            match client.request_text(request).await {
                Ok(_) => 200,
                Err(kube::Error::Api(status)) => status.code,
                Err(error) => panic!("{path}: {error}"),
            }
        })
    }
}

/// The path of each list that an API server serves.
fn lists(raw: impl Fn(&str) -> String) -> Vec<String> {
    let groups: Value = serde_json::from_str(&raw("/apis")).unwrap();
    let versions = groups["groups"].as_array().unwrap().iter().flat_map(|group| group["versions"].as_array().unwrap());
    let roots = versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap()));
    let roots: Vec<String> = roots.chain(["/api/v1".to_owned()]).collect();
    let mut paths = Vec::new();
    for root in roots {
        let list: Value = serde_json::from_str(&raw(&root)).unwrap();
        for resource in list["resources"].as_array().unwrap() {
            let listed = resource["verbs"].as_array().unwrap().iter().any(|verb| verb == "list");
            // Asks each component for its health, of which some have none to ask.
            let name = resource["name"].as_str().unwrap();
            if listed && name != "componentstatuses" {
                paths.push(format!("{root}/{name}"));
            }
        }
    }
    paths
}

#[test]
fn neighbours_of_a_control_plane_gain_no_right_by_it_and_see_no_secret_of_it() {
    let site = Site::on("host");
    site.kubectl(&["delete", "namespace", "tenant", "--ignore-not-found"]);
    for namespace in ["fleet", "tenant"] {
        site.kubectl(&["create", "namespace", namespace]);
    }
    let tenant = Stranger::new(&site, "tenant", "tenant", "admin");
    let reader = Stranger::new(&site, "reader", "fleet", "view");
    let places = ["tenant", "fleet", "default", "kube-system"];
    let before = tenant.rights(&places);
    site.install(&["--set", "exposure.type=NodePort"]).succeeds();

    assert_eq!(tenant.rights(&places), before, "an install gives a tenant nothing");

    // All that a reader of the namespace sees: every object, and the log of every container.
    let kinds = site.kubectl(&["api-resources", "--namespaced", "--verbs=list", "-o", "name"]);
    let seen: Vec<(&str, String)> = kinds
        .lines()
        .filter_map(|kind| Some((kind, reader.asks(&["-n", "fleet", "get", kind, "-o", "json"])?)))
        .collect();
    let sees = |wanted: &str| seen.iter().any(|(kind, _)| *kind == wanted);
    assert!(seen.len() > 15 && sees("configmaps") && sees("pods") && sees("events"), "{}", seen.len());
    assert!(!sees("secrets"));
    for (_, text) in &seen {
        site.saw(text);
    }
    let pods = reader.asks(&["-n", "fleet", "get", "pods", "-o", "name"]).unwrap();
    let logs: Vec<String> =
        pods.lines().map(|pod| reader.asks(&["-n", "fleet", "logs", "--all-containers", pod]).unwrap()).collect();
    assert!(logs.len() > 3 && logs.iter().any(|log| log.contains("audit.k8s.io")), "the audit log is among them");
    for log in &logs {
        site.saw(log);
    }
    site.assert_no_secret_was_shown();

    // At the door of the control plane: without a credential, and with one of the hosting cluster.
    let door = Door::of(&site);
    let paths = lists(|path| site.hub(&["get", "--raw", path]));
    assert!(paths.len() > 40 && paths.iter().any(|path| path.ends_with("/secrets")), "{paths:?}");
    for path in
        paths.iter().map(String::as_str).chain(["/metrics", "/configz", "/logs", "/debug/pprof/", "/openapi/v2"])
    {
        assert_eq!(door.knock(path, None), 403, "{path}");
    }
    for path in ["/version", "/healthz", "/livez", "/readyz"] {
        assert_eq!(door.knock(path, None), 200, "{path}");
    }
    for (account, namespace) in [("tenant", "tenant"), ("reader", "fleet")] {
        let token = site.kubectl(&["-n", namespace, "create", "token", account]);
        for path in ["/api/v1/secrets", "/version"] {
            assert_eq!(door.knock(path, Some(token.trim())), 401, "{account}: {path}");
        }
    }

    site.fleetctl(&["uninstall", "cp", "demo", "--delete-data", "--yes"]).succeeds();
    site.kubectl(&["delete", "namespace", "fleet", "tenant"]);
}
