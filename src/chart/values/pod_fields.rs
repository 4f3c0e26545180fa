//! Labels, annotations, variables and nodes that users give for pods, held against what Kubernetes takes and against what
//! the charts set themselves: found where they were given, before anything is rendered.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::labels::OWN_KEY_PREFIX;
use crate::api::names::{is_label_key, is_label_value};
use crate::api::values::pod_scheduling::TopologySpreadConstraint;
use crate::api::values::pod_values::{EnvVar, ProxyValues};
use crate::chart::diagnostic::{Diagnostic, Place};

use super::ValuesTree;

/// Labels that the charts give to pods, and by which Services, policies and workloads select them.
pub(in crate::chart) const OWN_LABELS: [&str; 7] = [
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "component",
];

/// Prefixes of keys that belong to this program, and to what finds its objects again.
const OWN_PREFIXES: [&str; 2] = [OWN_KEY_PREFIX, "applyset.kubernetes.io/"];

/// The label of nodes with their operating system.
const OS: &str = "kubernetes.io/os";

/// The variables that are made of the values `proxy`.
const PROXY_VARIABLES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// Values that are given for the pods of one component.
#[derive(Debug, Clone, Copy)]
pub struct PodFields<'v> {
    /// `podLabels`.
    pub labels: &'v BTreeMap<String, String>,
    /// `podAnnotations`.
    pub annotations: &'v BTreeMap<String, String>,
    /// `extraEnv`.
    pub env: &'v [EnvVar],
    /// `nodeSelector`.
    pub node_selector: &'v BTreeMap<String, String>,
    /// `topologySpreadConstraints`.
    pub spread: &'v [TopologySpreadConstraint],
    /// Names of the variables that the chart sets, for whatever reason.
    pub own_env: &'v [&'static str],
    /// The values `proxy`, where the component takes them.
    pub proxy: Option<&'v ProxyValues>,
}

/// Checks the values that are given at `path` for the pods of a component; `tree` knows their places.
pub fn check_pods(path: &[&str], fields: PodFields<'_>, tree: &ValuesTree) -> Vec<Diagnostic> {
    let mut check = PodFieldCheck { path, tree, found: Vec::new() };
    for (key, value) in fields.labels {
        check.check_key(&["podLabels", key], key, "label");
        check.label_value(&["podLabels", key], value);
        if OWN_LABELS.contains(&key.as_str()) || is_own(key) {
            check.report_reserved_key(&["podLabels", key], key, "label", "the chart sets it to select its pods");
        }
    }
    check.check_annotation_keys("podAnnotations", fields.annotations);
    check.node_selector(fields.node_selector);
    check.check_env(fields);
    check.check_topology_spread(fields.spread);
    check.found
}

/// Checks annotations at `path`, of objects that are no pods.
pub fn check_annotations(path: &[&str], given: &BTreeMap<String, String>, tree: &ValuesTree) -> Vec<Diagnostic> {
    let Some((last, above)) = path.split_last() else { return Vec::new() };
    let mut check = PodFieldCheck { path: above, tree, found: Vec::new() };
    check.check_annotation_keys(last, given);
    check.found
}

/// Checks a `nodeSelector` at `path`, of no component alone.
pub fn check_node_selector(path: &[&str], given: &BTreeMap<String, String>, tree: &ValuesTree) -> Vec<Diagnostic> {
    let mut check = PodFieldCheck { path, tree, found: Vec::new() };
    check.node_selector(given);
    check.found
}

/// Checks the values `proxy` at the top.
pub fn check_proxy(proxy: &ProxyValues, tree: &ValuesTree) -> Vec<Diagnostic> {
    let mut check = PodFieldCheck { path: &["proxy"], tree, found: Vec::new() };
    for (key, url) in [("http", &proxy.http), ("https", &proxy.https)] {
        let Some(url) = url else { continue };
        if url.contains('@') {
            // What stands before it is a password.
            let message = format!("`proxy.{key}` contains credentials, which would be readable in every pod");
            let variable = if key == "http" { "HTTP_PROXY" } else { "HTTPS_PROXY" };
            let help = format!(
                "leave this out, and put the whole address into a Secret of the namespace: `extraEnv: [{{name: \
                 {variable}, \
                 valueFrom: {{secretKeyRef: {{name: …, key: …}}}}}}]`"
            );
            check.add_problem(&[key], Diagnostic::error("proxy-credentials", message).help(help));
            if let Some(place) = check.found.last_mut().and_then(|problem| problem.place.as_mut()) {
                hide_text(place);
            }
        } else if port_of(url).is_none() {
            let message = format!("`{url}` is not the address of a proxy");
            let expected = "expected `http://HOST:PORT`; https and socks5 are possible, too";
            check.add_problem(&[key], Diagnostic::error("wrong-address", message).label(expected));
        }
    }
    check.found
}

/// The ports of the proxies, each once.
pub fn proxy_ports(proxy: &ProxyValues) -> Vec<u16> {
    let ports: BTreeSet<u16> =
        [&proxy.http, &proxy.https].into_iter().flatten().filter_map(|url| port_of(url)).collect();
    ports.into_iter().collect()
}

/// The port of a proxy: its own, else that of its scheme; none where the text is no address.
fn port_of(url: &str) -> Option<u16> {
    let url: http::Uri = url.parse().ok()?;
    let default = match url.scheme_str()? {
        "http" => 80,
        "https" => 443,
        "socks5" | "socks5h" => 1080,
        _ => return None,
    };
    let is_bare = url.path().trim_end_matches('/').is_empty() && url.query().is_none();
    (is_bare && !url.host()?.is_empty()).then(|| url.port_u16().unwrap_or(default))
}

/// Replaces what is at the place by stars, a star for each byte.
fn hide_text(place: &mut Place) {
    let range = place.start..place.start + place.width;
    if place.text.get(range.clone()).is_some() {
        place.text.replace_range(range.clone(), &"*".repeat(range.len()));
    }
}

fn is_own(key: &str) -> bool {
    OWN_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

struct PodFieldCheck<'c> {
    path: &'c [&'c str],
    tree: &'c ValuesTree,
    found: Vec<Diagnostic>,
}

impl PodFieldCheck<'_> {
    fn add_problem(&mut self, below: &[&str], diagnostic: Diagnostic) {
        self.found.push(self.tree.locate_diagnostic(&[self.path, below].concat(), diagnostic));
    }

    fn report_reserved_key(&mut self, below: &[&str], key: &str, what: &str, why: &str) {
        let message = format!("the {what} `{key}` belongs to the chart");
        let help = "use your own key, such as `example.com/team`";
        self.add_problem(below, Diagnostic::error("reserved-key", message).label(why).help(help));
    }

    fn check_annotation_keys(&mut self, list: &str, given: &BTreeMap<String, String>) {
        for key in given.keys() {
            self.check_key(&[list, key], key, "annotation");
            if is_own(key) {
                self.report_reserved_key(&[list, key], key, "annotation", "reserved for the service");
            }
        }
    }

    fn node_selector(&mut self, given: &BTreeMap<String, String>) {
        for (key, value) in given {
            self.check_key(&["nodeSelector", key], key, "label");
            self.label_value(&["nodeSelector", key], value);
            if key == OS && value != "linux" {
                let message = format!("no image runs on `{value}`");
                let help = "leave it out: `linux` is the default";
                self.add_problem(&["nodeSelector", key], Diagnostic::error("wrong-os", message).help(help));
            }
        }
    }

    /// A key of a label or an annotation: a name, perhaps behind a DNS name and a slash.
    fn check_key(&mut self, below: &[&str], key: &str, what: &str) {
        if is_label_key(key) {
            return;
        }
        let message = format!("`{key}` is not a valid key of {what}s");
        let expected = "expected letters, digits, `-`, `_` and `.`, at most 63, optionally after a domain and a `/`";
        self.add_problem(below, Diagnostic::error("invalid-key", message).label(expected));
    }

    fn label_value(&mut self, below: &[&str], value: &str) {
        if is_label_value(value) {
            return;
        }
        let message = format!("`{value}` is not a valid label value");
        let expected = "expected letters, digits, `-`, `_` and `.`, at most 63, the first and last a letter or digit";
        self.add_problem(below, Diagnostic::error("invalid-label", message).label(expected));
    }

    fn check_env(&mut self, fields: PodFields<'_>) {
        let mut names = BTreeSet::new();
        for (index, variable) in fields.env.iter().enumerate() {
            let index = index.to_string();
            let (here, name) = (["extraEnv", index.as_str()], variable.name.as_str());
            if !names.insert(name) {
                let message = format!("the variable `{name}` is given twice");
                self.add_problem(&here, Diagnostic::error("duplicate-key", message).help("leave one of them out"));
            }
            let is_proxy = fields.proxy.is_some_and(|proxy| is_set_by_proxy(proxy, name));
            if fields.own_env.contains(&name) || is_proxy {
                let message = format!("the variable `{name}` is set by the chart");
                let help = if is_proxy { "leave it out here, or in `proxy`" } else { "leave it out" };
                self.add_problem(&here, Diagnostic::error("reserved-key", message).help(help));
            }
            let sources = variable.value_from.as_ref().map_or(0, |from| {
                let ways = [
                    from.config_map_key_ref.is_some(),
                    from.secret_key_ref.is_some(),
                    from.field_ref.is_some(),
                    from.resource_field_ref.is_some(),
                ];
                ways.into_iter().filter(|is_given| *is_given).count()
            });
            let is_whole = match (&variable.value, &variable.value_from) {
                (Some(_), Some(_)) => false,
                (_, Some(_)) => sources == 1,
                (_, None) => true,
            };
            if !is_whole {
                let message = format!("the variable `{name}` must have exactly one source");
                let help = "give `value`, or in `valueFrom` one of `secretKeyRef`, `configMapKeyRef`, `fieldRef` and `resourceFieldRef`";
                self.add_problem(&here, Diagnostic::error("wrong-source", message).help(help));
            }
        }
    }

    fn check_topology_spread(&mut self, given: &[TopologySpreadConstraint]) {
        let mut seen = BTreeSet::new();
        for (index, constraint) in given.iter().enumerate() {
            let when = format!("{:?}", constraint.when_unsatisfiable);
            if seen.insert((&constraint.topology_key, when.clone())) {
                continue;
            }
            let message = format!("two constraints on `{}` have `{when}`", constraint.topology_key);
            let index = index.to_string();
            let problem = Diagnostic::error("duplicate-key", message).help("leave one of them out");
            self.add_problem(&["topologySpreadConstraints", &index], problem);
        }
    }
}

/// Returns whether a variable is made of the values `proxy`.
fn is_set_by_proxy(proxy: &ProxyValues, name: &str) -> bool {
    let [http, https, no_proxy] = PROXY_VARIABLES;
    let any = proxy.http.is_some() || proxy.https.is_some() || !proxy.no_proxy.is_empty();
    name == http && proxy.http.is_some() || name == https && proxy.https.is_some() || name == no_proxy && any
}
