//! Checks of values that a schema cannot express: addresses that certificates can carry, lengths of time that the
//! scheduler takes, and resources that Kubernetes gives. What would be refused later is refused before anything is
//! written.

use std::net::Ipv6Addr;
use std::time::Duration;

use super::endpoint::exposure::endpoint_from_values;
use super::endpoint::reachable::{Role, explain_unreachable};
use super::values::{
    ApiServerValues, ControlPlaneValues, EtcdValues, ExposureType, ExposureValues, Lifetime, PkiSource, SMALLEST_QUOTA,
};
use super::version::recorded_minor;
use crate::api::admission::{self, UNUSED_PLUGINS, WEBHOOK_PLUGINS};
use crate::api::values::agent_certificate_lifetime::CERTIFICATE_AT_LEAST;
use crate::api::values::lifetime;
use crate::api::values::pod_values::Resources;
use crate::api::values::token_lifetime::TOKEN_AT_LEAST;
use crate::api::version::KubeMinor;
use crate::chart::values::{
    PodFields, check_annotations, check_node_selector, check_peers, check_pods, check_proxy, is_range,
};
use crate::chart::{Diagnostic, Diagnostics, ValuesTree};
use crate::install::{validate_extra_kinds, validate_resources};
use crate::pki::San;

/// The variables that the chart gives to etcd.
const ETCD_ENV: [&str; 7] = [
    "POD_NAME",
    "ETCD_INITIAL_CLUSTER",
    "ETCD_INITIAL_CLUSTER_STATE",
    "ETCDCTL_ENDPOINTS",
    "ETCDCTL_CACERT",
    "ETCDCTL_CERT",
    "ETCDCTL_KEY",
];

/// The arguments of etcd that the chart gives as variables. etcd does not start if it gets both.
const ETCD_MEMBER_FLAGS: [&str; 2] = ["initial-cluster", "initial-cluster-state"];

/// The variables that the chart gives to the scheduler, with some values or others.
const SCHEDULER_ENV: [&str; 3] = ["POD_NAME", "FLEET_CLOUD_ACCESS_KEY_FILE", "FLEET_CLOUD_PROJECT_ID"];

/// Checks values that fit their schema; `tree` knows where each was given.
///
/// # Errors
/// Everything that is wrong, each at its place.
pub(super) fn check_values(values: &ControlPlaneValues, tree: &ValuesTree) -> Result<(), Diagnostics> {
    let mut check = Check { tree, found: Vec::new() };
    check.check_exposure(&values.exposure);
    check.check_etcd_quota(&values.etcd);
    check.check_etcd_arguments(&values.etcd);
    check.check_key_source(values);
    check.check_minor_skew(values);
    check.check_admission_plugins(&values.apiserver);
    let scheduler = &values.scheduler;
    check.check_lifetime("initTokenTTL", &scheduler.init_token_ttl, TOKEN_AT_LEAST);
    check.check_lifetime("agentCertificateTTL", &scheduler.agent_certificate_ttl, CERTIFICATE_AT_LEAST);
    let kinds = values.placement.extra_kinds.iter().map(|one| [&*one.group, &*one.version, &*one.kind]);
    check.found.extend(validate_extra_kinds::check_extra_kinds(kinds, tree));
    for (component, resources, pods) in list_components(values) {
        check.found.extend(validate_resources::check_resources(&[component], resources, tree));
        check.found.extend(check_pods(&[component], pods, tree));
    }
    check.found.extend(check_node_selector(&[], &values.node_selector, tree));
    check.found.extend(check_annotations(&["exposure", "annotations"], &values.exposure.annotations, tree));
    let account = &values.service_account.annotations;
    check.found.extend(check_annotations(&["serviceAccount", "annotations"], account, tree));
    check.found.extend(check_proxy(&values.proxy, tree));
    let policies = &values.network_policy;
    for (key, peers) in
        [("metricsFrom", &policies.metrics_from), ("dnsTo", &policies.dns_to), ("cloudTo", &policies.cloud_to)]
    {
        check.found.extend(check_peers(&["networkPolicy", key], peers, tree));
    }
    if check.found.is_empty() { Ok(()) } else { Err(Diagnostics(check.found)) }
}

/// Each component by its key, with what its containers ask for and what is given for its pods.
fn list_components(values: &ControlPlaneValues) -> [(&'static str, &Resources, PodFields<'_>); 4] {
    macro_rules! fields {
        ($component:expr, $own_env:expr, $proxy:expr) => {
            PodFields {
                labels: &$component.pod_labels,
                annotations: &$component.pod_annotations,
                env: &$component.extra_env,
                node_selector: &$component.node_selector,
                spread: &$component.topology_spread_constraints,
                own_env: $own_env,
                proxy: $proxy,
            }
        };
    }
    let ControlPlaneValues { etcd, apiserver, controller_manager, scheduler, .. } = values;
    [
        ("etcd", &etcd.resources, fields!(etcd, &ETCD_ENV, None)),
        ("apiserver", &apiserver.resources, fields!(apiserver, &[], None)),
        ("controllerManager", &controller_manager.resources, fields!(controller_manager, &[], None)),
        ("scheduler", &scheduler.resources, fields!(scheduler, &SCHEDULER_ENV, Some(&values.proxy))),
    ]
}

struct Check<'t> {
    tree: &'t ValuesTree,
    found: Vec<Diagnostic>,
}

impl Check<'_> {
    fn add_diagnostic(&mut self, path: &[&str], diagnostic: Diagnostic) {
        self.found.push(self.tree.locate_diagnostic(path, diagnostic));
    }

    /// Checks that the quota of etcd fits its volume: beyond that, etcd fails before it can refuse a write.
    fn check_etcd_quota(&mut self, etcd: &EtcdValues) {
        let (quota, Some(size)) = (etcd.effective_quota(), etcd.storage.size_in_bytes()) else { return };
        if quota <= size {
            return;
        }
        let text = &etcd.storage.size.0;
        let (path, diagnostic) = if etcd.quota_bytes.is_some() {
            let message = format!(
                "`etcd.quotaBytes` is {quota}, more than the volume holds: `etcd.storage.size` is {text} ({size} bytes)"
            );
            let help = "leave `etcd.quotaBytes` out, so that it follows the size; or request a larger volume";
            (&["etcd", "quotaBytes"][..], Diagnostic::error("quota-beyond-volume", message).help(help))
        } else {
            let message = format!(
                "`etcd.storage.size` is {text} ({size} bytes), less than the smallest quota of etcd, {SMALLEST_QUOTA} bytes"
            );
            let help = "request a larger volume: `--set etcd.storage.size=10Gi`";
            (&["etcd", "storage", "size"][..], Diagnostic::error("quota-beyond-volume", message).help(help))
        };
        self.add_diagnostic(path, diagnostic);
    }

    /// Checks that no argument gives etcd its members a second time.
    fn check_etcd_arguments(&mut self, etcd: &EtcdValues) {
        for (index, argument) in etcd.extra_args.iter().enumerate() {
            let name = argument.0.trim_start_matches('-').split('=').next().unwrap_or_default();
            if ETCD_MEMBER_FLAGS.contains(&name) {
                let message = format!("`etcd.extraArgs` sets `--{name}`, which ConfigMap `etcd-members` already sets");
                let help = "leave it out; the chart sets the members from `etcd.replicas`";
                let diagnostic = Diagnostic::error("set-by-chart", message).help(help);
                self.add_diagnostic(&["etcd", "extraArgs", &index.to_string()], diagnostic);
            }
        }
    }

    /// Checks Kubernetes' policy on version skew: a controller manager is of the minor of its API server, or of the one
    /// before.
    fn check_minor_skew(&mut self, values: &ControlPlaneValues) {
        let [server, manager] = [&values.apiserver.image.tag, &values.controller_manager.image.tag];
        let (Some(of_server), Some(of_manager)) = (recorded_minor::of_tag(server), recorded_minor::of_tag(manager))
        else {
            return;
        };
        let before = KubeMinor { minor: of_server.minor.saturating_sub(1), ..of_server };
        if (before..=of_server).contains(&of_manager) {
            return;
        }
        let message = format!(
            "`controllerManager.image.tag` is `{manager}` and `apiserver.image.tag` is `{server}`: a controller manager must have the API server's minor version or the one before"
        );
        let paths = ["controllerManager", "apiserver"].map(|component| [component, "image", "tag"]);
        let given = paths.iter().find(|path| self.tree.is_given(&path.map(str::to_owned)));
        let path = *given.unwrap_or(&paths[0]);
        let help =
            format!("set both: `--set apiserver.image.tag={server},controllerManager.image.tag={server}`; or neither");
        self.add_diagnostic(&path, Diagnostic::error("version-skew", message).help(help));
    }

    /// Checks that no argument enables an admission plugin that the chart disables: an API server that is given both does
    /// not start.
    fn check_admission_plugins(&mut self, apiserver: &ApiServerValues) {
        for (index, argument) in apiserver.extra_args.iter().enumerate() {
            let disabled = admission::enabled_plugins(&argument.0).find(|plugin| {
                UNUSED_PLUGINS.contains(plugin)
                    || WEBHOOK_PLUGINS.contains(plugin) && !apiserver.allow_admission_webhooks
            });
            let Some(plugin) = disabled else { continue };
            let (is_off, help) = if WEBHOOK_PLUGINS.contains(&plugin) {
                (
                    "off by default",
                    "leave it out of the argument; or turn webhooks on: `--set apiserver.allowAdmissionWebhooks=true`",
                )
            } else {
                (
                    "off in a control plane",
                    "leave it out of the argument; the API servers of the workload clusters run this plugin",
                )
            };
            let message = format!("`apiserver.extraArgs` enables the admission plugin {plugin}, which is {is_off}");
            let diagnostic = Diagnostic::error("disabled-plugin", message).help(help);
            self.add_diagnostic(&["apiserver", "extraArgs", &index.to_string()], diagnostic);
        }
    }

    /// Checks that a Secret that exists beforehand is named, and that values say the address of the API server, which
    /// its certificates name.
    fn check_key_source(&mut self, values: &ControlPlaneValues) {
        let is_existing = values.pki.source == PkiSource::Existing;
        if is_existing != values.pki.existing_secret.is_some() {
            let (message, help) = if is_existing {
                (
                    "`pki.source` is Existing, but `pki.existingSecret` is not set",
                    "give its name: `--set pki.existingSecret=NAME`",
                )
            } else {
                (
                    "`pki.existingSecret` has no effect with this `pki.source`",
                    "give `--set pki.source=Existing` too, or leave it out",
                )
            };
            let path = if is_existing { ["pki", "source"] } else { ["pki", "existingSecret"] };
            self.add_diagnostic(&path, Diagnostic::error("wrong-keys", message).help(help));
        }
        if let (true, Err(missing)) = (is_existing, endpoint_from_values(&values.exposure)) {
            let message = format!("`pki.source` is Existing, but `{missing}` is not set");
            let help = "the certificates in the Secret contain the address of the API server, so set this address: `exposure.type` and `exposure.host`, and for a node port also `exposure.port`";
            self.add_diagnostic(&["pki", "source"], Diagnostic::error("wrong-keys", message).help(help));
        }
    }

    fn check_exposure(&mut self, exposure: &ExposureValues) {
        if let Some(host) = &exposure.host {
            self.check_exposure_host(host);
        }
        for (index, san) in exposure.extra_sans.iter().enumerate() {
            let path = ["exposure", "extraSANs", &index.to_string()];
            if !is_address(san) {
                self.add_diagnostic(&path, no_address(san));
            } else if let Some(why) = explain_unreachable(san, Role::Certificate) {
                self.add_diagnostic(&path, unreachable_address(san, why));
            }
        }
        for (index, range) in exposure.source_ranges.iter().enumerate() {
            if !is_range(range) {
                let diagnostic = Diagnostic::error("wrong-address", format!("`{range}` is not an address range"))
                    .label("expected CIDR notation, such as `10.0.0.0/8`");
                self.add_diagnostic(&["exposure", "sourceRanges", &index.to_string()], diagnostic);
            }
        }
        if let Some(endpoint) = &exposure.agent_endpoint {
            self.agent_endpoint(endpoint);
        }
        if exposure.load_balancer_class.is_some()
            && !matches!(exposure.kind, ExposureType::Auto | ExposureType::LoadBalancer)
        {
            let help = "leave it out, or use a load balancer: `--set exposure.type=LoadBalancer`";
            self.other_type("loadBalancerClass", "type LoadBalancer", help);
        }
        if exposure.external_traffic_policy.is_some() && exposure.kind == ExposureType::ClusterIp {
            let help = "leave it out: there is no traffic from outside of the hosting cluster";
            self.other_type("externalTrafficPolicy", "types LoadBalancer and NodePort", help);
        }
    }

    /// Refuses a value that has no meaning for the type of exposure that was chosen.
    fn other_type(&mut self, key: &str, types: &str, help: &str) {
        let message = format!("`exposure.{key}` is for {types} only");
        self.add_diagnostic(&["exposure", key], Diagnostic::error("other-exposure", message).help(help));
    }

    fn check_exposure_host(&mut self, text: &str) {
        if is_address(text) {
            if let Some(why) = explain_unreachable(text, Role::Kubeconfig) {
                self.add_diagnostic(&["exposure", "host"], unreachable_address(text, why));
            }
            return;
        }
        let mut diagnostic = no_address(text);
        if let Some((host, port)) = with_port(text) {
            diagnostic = diagnostic
                .help(format!("set the port in `exposure.port`: `--set exposure.host={host},exposure.port={port}`"));
        }
        self.add_diagnostic(&["exposure", "host"], diagnostic);
    }

    fn agent_endpoint(&mut self, text: &str) {
        let Some((host, port)) = text.rsplit_once(':') else { return };
        let path = ["exposure", "agentEndpoint"];
        let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let has_brackets = in_brackets.is_some_and(|inner| inner.parse::<Ipv6Addr>().is_ok());
        if host.parse::<Ipv6Addr>().is_ok() {
            let diagnostic = Diagnostic::error("wrong-address", format!("`{text}` is not of the form `host:port`"));
            let help = format!("write `[{host}]:{port}` if {port} is the port");
            self.add_diagnostic(&path, diagnostic.label("write an IPv6 address in brackets").help(help));
        } else if !has_brackets && (in_brackets.is_some() || !is_address(host)) {
            self.add_diagnostic(&path, no_address(host));
        } else if let Some(why) = explain_unreachable(host, Role::Agent) {
            self.add_diagnostic(&path, unreachable_address(host, why));
        } else if !port.parse::<u16>().is_ok_and(|port| port > 0) {
            let message = format!("port {port} is out of range for `exposure.agentEndpoint`");
            self.add_diagnostic(
                &path,
                Diagnostic::error("out-of-range", message).label("expected a port from 1 to 65535"),
            );
        }
    }

    fn check_lifetime(&mut self, key: &str, Lifetime(text): &Lifetime, at_least: Duration) {
        if let Err(wrong) = lifetime::parse_lifetime(text, at_least) {
            let message = format!("`{text}` is out of range for `scheduler.{key}`");
            self.add_diagnostic(
                &["scheduler", key],
                Diagnostic::error("out-of-range", message).label(wrong.to_string()),
            );
        }
    }
}

/// Returns whether a certificate can carry `text` as a subject alternative name.
fn is_address(text: &str) -> bool {
    text.parse::<San>().is_ok()
}

/// Splits a text into an address and the port behind it; nothing where it is not of that form.
fn with_port(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    Some((host, port.parse().ok()?)).filter(|(host, port)| *port > 0 && is_address(host))
}

fn unreachable_address(text: &str, why: &'static str) -> Diagnostic {
    Diagnostic::error("wrong-address", format!("no client can connect to `{text}`"))
        .label(why)
        .help("give the host name or the address of the API server")
}

fn no_address(text: &str) -> Diagnostic {
    Diagnostic::error("wrong-address", format!("`{text}` is neither a host name nor an IP address"))
        .label("no certificate can be issued for it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Chart, Kind, SetKind};

    /// The problem, as `path code`.
    fn found(sets: &[&str]) -> Vec<String> {
        let mut builder = Chart::load_embedded(Kind::ControlPlane, "v1.1".parse().unwrap()).unwrap().values_builder();
        for set in sets {
            builder = builder.set(SetKind::Value, set);
        }
        let tree = builder.build_checked(ControlPlaneValues::schema()).unwrap_or_else(|error| panic!("{error}"));
        match check_values(&tree.deserialize().unwrap(), &tree) {
            Ok(()) => Vec::new(),
            Err(Diagnostics(problems)) => {
                assert!(problems.iter().all(|problem| problem.place.is_some()), "{problems:?}");
                problems.iter().map(|problem| format!("{} {}", problem.path, problem.code)).collect()
            }
        }
    }

    #[test]
    fn a_peer_of_network_policies_is_pods_or_addresses() {
        assert_eq!(found(&["networkPolicy.dnsTo[0].namespaceSelector.matchLabels.a=b"]), [""; 0]);
        assert_eq!(found(&["networkPolicy.dnsTo[0].ipBlock.cidr=fd00::/8"]), [""; 0]);
        assert_eq!(
            found(&["networkPolicy.dnsTo[0].ipBlock.cidr=10.0.0.1"]),
            ["networkPolicy.dnsTo[0].ipBlock.cidr wrong-address"]
        );
        let both =
            ["networkPolicy.cloudTo[0].podSelector.matchLabels.a=b", "networkPolicy.cloudTo[0].ipBlock.cidr=::/0"];
        assert_eq!(found(&both), ["networkPolicy.cloudTo[0] wrong-peer"]);
    }

    #[test]
    fn the_members_of_etcd_are_given_once() {
        assert_eq!(found(&["etcd.extraArgs[0]=--initial-cluster=etcd-0"]), ["etcd.extraArgs[0] set-by-chart"]);
        assert_eq!(found(&["etcd.extraArgs[0]=--initial-cluster-state=existing"]), ["etcd.extraArgs[0] set-by-chart"]);
        assert_eq!(found(&["etcd.extraArgs[0]=--initial-cluster-token=mine"]), [""; 0]);
    }

    fn check_tags(api_server: &str, controller_manager: &str) -> Vec<String> {
        let set =
            [format!("apiserver.image.tag={api_server}"), format!("controllerManager.image.tag={controller_manager}")];
        found(&set.each_ref().map(String::as_str))
    }

    #[test]
    fn a_controller_manager_is_not_newer_than_its_api_server() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (a, b) in [("v1.36.3", "v1.36.1"), ("v1.36.3", "v1.35.4"), (&*digest, "v1.36.3"), ("latest", "v1.36.3")] {
            assert_eq!(check_tags(a, b), [""; 0], "{a} {b}");
        }
        for (a, b) in [("v1.35.4", "v1.36.3"), ("v1.36.3", "v1.34.4"), (&*format!("v1.36.3@{digest}"), "v1.37.2")] {
            assert_eq!(check_tags(a, b), ["controllerManager.image.tag version-skew"], "{a} {b}");
        }
    }

    #[test]
    fn an_admission_plugin_that_the_chart_disables_is_not_enabled_by_an_argument() {
        let option = "apiserver.extraArgs[0]=--enable-admission-plugins=";
        assert_eq!(found(&[&format!("{option}NodeRestriction")]), [""; 0]);
        for plugin in ["MutatingAdmissionWebhook", r"NodeRestriction\,ValidatingAdmissionWebhook"] {
            let argument = format!("{option}{plugin}");
            assert_eq!(found(&[&argument]), ["apiserver.extraArgs[0] disabled-plugin"], "{plugin}");
            assert_eq!(found(&[&argument, "apiserver.allowAdmissionWebhooks=true"]), [""; 0], "{plugin}");
        }
        for plugin in UNUSED_PLUGINS {
            let sets = [&*format!("{option}{plugin}"), "apiserver.allowAdmissionWebhooks=true"];
            assert_eq!(found(&sets), ["apiserver.extraArgs[0] disabled-plugin"], "{plugin}");
        }
    }

    #[test]
    fn what_can_be_used_is_let_through() {
        for sets in [
            &[][..],
            &["exposure.host=fleet.example.com"],
            &["exposure.host=10.0.0.1", "exposure.extraSANs={*.fleet.example,fd00::1,10.0.0.2}"],
            &["exposure.host=fd00::1", "exposure.agentEndpoint=[fd00::1]:443"],
            &["exposure.agentEndpoint=fleet.example.com:6443"],
            &["exposure.sourceRanges={10.0.0.0/8,192.0.2.1/32,fd00::/8}"],
            &["scheduler.initTokenTTL=3649d", "scheduler.agentCertificateTTL=600s"],
        ] {
            assert_eq!(found(sets), [""; 0], "{sets:?}");
        }
    }

    #[test]
    fn addresses_that_no_certificate_can_carry_are_refused_where_they_were_given() {
        for host in ["fleet.example.com:6443", "10.0.0.300", "10.0.0.1:6443", "-x", "a..b"] {
            assert_eq!(found(&[&format!("exposure.host={host}")]), ["exposure.host wrong-address"], "{host}");
        }
        assert_eq!(
            found(&["exposure.extraSANs={10.0.0.1,10.0.0.300,a..b}"]),
            ["exposure.extraSANs[1] wrong-address", "exposure.extraSANs[2] wrong-address"]
        );
        for endpoint in ["10.0.0.300:443", "fd00::1:443", "[fleet.example]:443", "[10.0.0.1]:443", "a..b:443"] {
            let found = found(&[&format!("exposure.agentEndpoint={endpoint}")]);
            assert_eq!(found, ["exposure.agentEndpoint wrong-address"], "{endpoint}");
        }
        for host in ["0.0.0.0", "::", "fe80::1", "224.0.0.1"] {
            assert_eq!(found(&[&format!("exposure.host={host}")]), ["exposure.host wrong-address"], "{host}");
        }
        for host in ["0.0.0.0", "[::]", "127.0.0.1", "localhost", "[::ffff:0.0.0.0]"] {
            let found = found(&[&format!("exposure.agentEndpoint={host}:443")]);
            assert_eq!(found, ["exposure.agentEndpoint wrong-address"], "{host}");
        }
        assert_eq!(
            found(&["exposure.extraSANs={0.0.0.0,*.example.com,127.0.0.1,::}"]),
            ["exposure.extraSANs[0] wrong-address", "exposure.extraSANs[3] wrong-address"]
        );
        assert_eq!(
            found(&["exposure.sourceRanges={10.0.0.0,10.0.0.0/8,foo,10.0.0.0/33,fd00::/+8}"]),
            [0, 2, 3, 4].map(|index| format!("exposure.sourceRanges[{index}] wrong-address"))
        );
        for port in ["0", "65536"] {
            let found = found(&[&format!("exposure.agentEndpoint=fleet.example:{port}")]);
            assert_eq!(found, ["exposure.agentEndpoint out-of-range"], "{port}");
        }
    }

    #[test]
    fn what_belongs_to_the_chart_is_refused_of_each_component_where_it_was_given() {
        for component in ["etcd", "apiserver", "controllerManager", "scheduler"] {
            for (set, code) in [
                (r"podLabels.app\.kubernetes\.io/name=x", r#"podLabels["app.kubernetes.io/name"] reserved-key"#),
                (r"podLabels.component=x", "podLabels.component reserved-key"),
                (r"podLabels.fleet-scheduler\.io/x=x", r#"podLabels["fleet-scheduler.io/x"] reserved-key"#),
                ("podLabels.-x=x", "podLabels.-x invalid-key"),
                ("podLabels.x=a b", "podLabels.x invalid-label"),
                (r"podAnnotations.fleet-scheduler\.io/x=x", r#"podAnnotations["fleet-scheduler.io/x"] reserved-key"#),
                (r"podAnnotations.a/b/c=x", r#"podAnnotations["a/b/c"] invalid-key"#),
                (r"nodeSelector.kubernetes\.io/os=windows", r#"nodeSelector["kubernetes.io/os"] wrong-os"#),
                ("extraEnv[0].name=A,extraEnv[1].name=A", "extraEnv[1] duplicate-key"),
                (
                    "extraEnv[0].name=A,extraEnv[0].value=1,extraEnv[0].valueFrom.fieldRef.fieldPath=x",
                    "extraEnv[0] wrong-source",
                ),
            ] {
                let sets: Vec<String> = set.split(',').map(|set| format!("{component}.{set}")).collect();
                let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
                assert_eq!(found(&sets), [format!("{component}.{code}")], "{set}");
            }
        }
        assert_eq!(found(&["etcd.extraEnv[0].name=POD_NAME"]), ["etcd.extraEnv[0] reserved-key"]);
        let proxy = "proxy.https=http://p:1";
        assert_eq!(found(&[proxy, "scheduler.extraEnv[0].name=HTTPS_PROXY"]), ["scheduler.extraEnv[0] reserved-key"]);
        assert_eq!(found(&[proxy, "apiserver.extraEnv[0].name=HTTPS_PROXY"]), [""; 0]);
        assert_eq!(found(&["scheduler.extraEnv[0].name=HTTPS_PROXY"]), [""; 0]);
        let twice = "topologyKey=zone,etcd.topologySpreadConstraints[1].whenUnsatisfiable=DoNotSchedule,etcd.topologySpreadConstraints[1].maxSkew=1";
        let once = twice.replace("[1]", "[0]");
        let both = format!("etcd.topologySpreadConstraints[0].{once},etcd.topologySpreadConstraints[1].{twice}");
        assert_eq!(found(&[&both]), ["etcd.topologySpreadConstraints[1] duplicate-key"]);
    }

    #[test]
    fn a_proxy_is_an_address_without_a_password() {
        for url in
            ["http://proxy:3128", "https://proxy.example.com", "socks5://10.0.0.1:1080/", "http://[fd00::1]:3128"]
        {
            assert_eq!(found(&[&format!("proxy.https={url}")]), [""; 0], "{url}");
        }
        for url in ["proxy:3128", "ftp://proxy", "http://proxy/path", "http://", "http:// "] {
            assert_eq!(found(&[&format!("proxy.http={url}")]), ["proxy.http wrong-address"], "{url}");
        }
        assert_eq!(found(&["proxy.https=http://me:hunter2@proxy:1"]), ["proxy.https proxy-credentials"]);
        let tree = Chart::load_embedded(Kind::ControlPlane, "v1.1".parse().unwrap()).unwrap().values_builder();
        let tree = tree.file("my.yaml", b"proxy: {https: 'http://me:hunter2@proxy:1'}\n");
        let tree = tree.build_checked(ControlPlaneValues::schema()).unwrap();
        let text = check_values(&tree.deserialize().unwrap(), &tree).unwrap_err().render_diagnostics(false);
        assert!(text.contains("my.yaml:1:") && text.contains("secretKeyRef") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn what_has_no_meaning_for_an_exposure_is_refused() {
        let class = "exposure.loadBalancerClass=example.com/nlb";
        for (kind, is_taken) in [("Auto", true), ("LoadBalancer", true), ("NodePort", false), ("ClusterIP", false)] {
            let found = found(&[&format!("exposure.type={kind}"), class]);
            assert_eq!(found.is_empty(), is_taken, "{kind}: {found:?}");
        }
        let policy = ["exposure.type=ClusterIP", "exposure.externalTrafficPolicy=Local"];
        assert_eq!(found(&policy), ["exposure.externalTrafficPolicy other-exposure"]);
    }

    #[test]
    fn resources_are_checked_of_each_component() {
        for component in ["etcd", "apiserver", "controllerManager", "scheduler"] {
            let set = format!("{component}.resources.limits.memory=16Mi");
            let path = format!("{component}.resources.limits.memory limit-below-request");
            assert_eq!(found(&[&set]), [path]);
        }
    }

    #[test]
    fn lives_that_the_scheduler_would_not_take_are_refused_where_they_were_given() {
        assert_eq!(
            found(&["scheduler.initTokenTTL=3650d,scheduler.agentCertificateTTL=599s"]),
            ["scheduler.initTokenTTL out-of-range", "scheduler.agentCertificateTTL out-of-range"]
        );
        assert_eq!(found(&["scheduler.agentCertificateTTL=10000d"]), ["scheduler.agentCertificateTTL out-of-range"]);
    }
}
