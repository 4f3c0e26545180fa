//! Facts of a record about the endpoint of the API, and what follows from them for the next install.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Service;

use super::exposure::{Endpoint, host_of, port_of};
use crate::api::remedy::{Action, Command, Flag, Place, Remedy, Subject};
use crate::api::util::text::visible_cell;
use crate::check::hosting::USUAL_NODE_PORTS;
use crate::control_plane::values::{ExposureType, ExposureValues};
use crate::k8s::MANAGER;

/// Name of the fact of a record that says which node port the Service has, where its URL does not.
const NODE_PORT: &str = "nodePort";

/// The node port of an earlier install, from the facts of its record: as they say, else the port of its URL, unless
/// `exposure.port` put another there, which lies outside of the usual range.
pub(in crate::control_plane) fn recorded_node_port(facts: &BTreeMap<String, String>) -> Option<u16> {
    facts.get("exposure").filter(|kind| **kind == format!("{:?}", ExposureType::NodePort))?;
    if let Some(recorded) = facts.get(NODE_PORT).and_then(|port| port.parse().ok()) {
        return Some(recorded);
    }
    let (_, port) = facts.get("server")?.rsplit_once(':')?;
    port.parse().ok().filter(|port| USUAL_NODE_PORTS.contains(port))
}

/// Builds the facts of a record about the endpoint of the API.
pub(in crate::control_plane) fn endpoint_facts(endpoint: &Endpoint) -> BTreeMap<String, String> {
    let mut facts = BTreeMap::from([
        ("exposure".to_owned(), format!("{:?}", endpoint.kind)),
        ("server".to_owned(), endpoint.url()),
        ("host".to_owned(), endpoint.host.clone()),
    ]);
    // Where the URL says it, records from before there was this fact stay as they are: a second install writes nothing.
    let unsaid = endpoint.found_node_port.filter(|port| recorded_node_port(&facts) != Some(*port));
    facts.extend(unsaid.map(|port| (NODE_PORT.to_owned(), port.to_string())));
    facts
}

/// The warning where an earlier install, by the facts of its record, gave agents and kubeconfigs another address. `name` is
/// the control plane's.
pub(in crate::control_plane) fn moved_endpoint_warning(
    recorded: &BTreeMap<String, String>,
    endpoint: &Endpoint,
    exposure: &ExposureValues,
    name: &str,
) -> Option<Remedy> {
    let url = endpoint.url();
    let former = recorded.get("server").filter(|former| **former != url)?;
    let address = former.strip_prefix("https://").unwrap_or(former);
    let (host, port) = (host_of(address), address.rsplit_once(':').map_or("443", |(_, port)| port));
    let mut keep = Vec::new();
    if host != endpoint.host {
        keep.push(Flag::set_value("exposure.host", host));
    }
    if port != endpoint.port.to_string() {
        keep.push(Flag::set_value("exposure.port", port));
    }
    // Agents that have an address of their own do not call this one.
    let agents_call_it = exposure.agent_endpoint.is_none();
    let who = if agents_call_it { "agents and kubeconfigs" } else { "kubeconfigs" };
    let former = visible_cell(former);
    let mut advice = Remedy::new(format!(
        "the address of the API server changes from {former} to {url}: {who} with the old address can no longer \
         connect; if the old address still works, keep it: "
    ))
    .flags(keep)
    .text("; otherwise run ");
    if agents_call_it {
        let install =
            Command::at_place(Place::Context("WORKLOAD"), Action::Install(Subject::Agent("CLUSTER".to_owned())));
        advice = advice
            .command(install.with_flag(Flag::ControlPlane(name.to_owned())))
            .text(" for each workload cluster, and ");
    }
    let kubeconfig = Command::at_run_place(Action::Kubeconfig(name.to_owned()));
    Some(advice.command(kubeconfig).text(" on every other machine that uses this kubeconfig"))
}

/// The node port to render without a value that asks for one: while there is no Service, the recorded one, which the new
/// one shall have; after that, the one that was so rendered. What the cluster chose stays without being rendered.
pub(in crate::control_plane) fn former_node_port(service: Option<&Service>, recorded: u16) -> Option<u16> {
    let Some(service) = service else { return Some(recorded) };
    let entries = service.metadata.managed_fields.iter().flatten();
    let mut ours = entries
        .filter(|entry| entry.manager.as_deref() == Some(MANAGER) && entry.operation.as_deref() == Some("Apply"));
    let rendered = ours.any(|entry| {
        let ports = entry.fields_v1.as_ref().and_then(|fields| fields.0.pointer("/f:spec/f:ports")?.as_object());
        ports.into_iter().flatten().any(|(_, port)| port.get("f:nodePort").is_some())
    });
    let first = service.spec.as_ref().and_then(|spec| spec.ports.as_ref()?.first());
    first.and_then(|port| port_of(port.node_port)).filter(|_| rendered)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::control_plane::endpoint::exposure::tests::{exposure, node, service};
    use crate::control_plane::endpoint::exposure::{Known, find_endpoint};

    #[test]
    fn the_node_port_of_an_earlier_install_is_recorded_by_its_url_where_nothing_else_says_it() {
        for (kind, server, port) in [
            ("NodePort", "https://10.0.0.1:31234", Some(31234)),
            ("NodePort", "https://[fd00::1]:31234", Some(31234)),
            // That of something in front.
            ("NodePort", "https://api.example:443", None),
            ("LoadBalancer", "https://192.0.2.7:31234", None),
        ] {
            let facts = [("exposure", kind), ("server", server)].map(|(key, fact)| (key.to_owned(), fact.to_owned()));
            assert_eq!(recorded_node_port(&BTreeMap::from(facts)), port, "{kind} {server}");
        }
        assert_eq!(recorded_node_port(&BTreeMap::new()), None);
    }

    /// Endpoint of the API behind a Service with node port 31234.
    fn behind(kind: ExposureType, value: serde_json::Value) -> Endpoint {
        let service = service(json!({"metadata": {"name": "apiserver"},
            "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 443, "nodePort": 31234}]}}));
        find_endpoint(kind, &exposure(value), &service, &[node("a", "", &["10.0.0.1"])], &Known::default()).unwrap()
    }

    #[test]
    fn a_node_port_that_the_url_does_not_say_is_recorded_and_taken_back() {
        for front in [json!({"port": 443}), json!({"host": "api.example", "port": 443}), json!({"port": 31000})] {
            let recorded = endpoint_facts(&behind(ExposureType::NodePort, front));
            assert_eq!((recorded["nodePort"].as_str(), recorded_node_port(&recorded)), ("31234", Some(31234)));
        }
        // As it was recorded before: what is installed already is not written again.
        let recorded = endpoint_facts(&behind(ExposureType::NodePort, json!({})));
        assert_eq!(recorded.keys().collect::<Vec<_>>(), ["exposure", "host", "server"]);
        assert_eq!(recorded_node_port(&recorded), Some(31234));
        // Any Service may have one; here nobody calls it.
        let inside = endpoint_facts(&behind(ExposureType::ClusterIp, json!({})));
        assert_eq!((inside.get("nodePort"), recorded_node_port(&inside)), (None, None));
    }

    /// The warning if the recorded address is `server` and the endpoint has these values.
    fn warn_moved_from(server: &str, value: serde_json::Value) -> Remedy {
        let recorded = BTreeMap::from([("server".to_owned(), server.to_owned())]);
        let endpoint = behind(ExposureType::NodePort, value.clone());
        moved_endpoint_warning(&recorded, &endpoint, &exposure(value), "demo").unwrap_or_default()
    }

    #[test]
    fn an_address_that_changes_is_told_with_what_keeps_it_and_with_who_does_not_find_it() {
        assert_eq!(warn_moved_from("https://10.0.0.1:31234", json!({})), Remedy::default());
        let host = warn_moved_from("https://10.0.0.2:31234", json!({}));
        let change = "changes from https://10.0.0.2:31234 to https://10.0.0.1:31234: agents and kubeconfigs";
        assert!(host.joined_text().contains(change), "{host:?}");
        assert_eq!(host.lone_flags(), [&Flag::set_value("exposure.host", "10.0.0.2")]);
        let install =
            Command::at_place(Place::Context("WORKLOAD"), Action::Install(Subject::Agent("CLUSTER".to_owned())));
        let install = install.with_flag(Flag::ControlPlane("demo".to_owned()));
        assert_eq!(host.commands(), [&install, &Command::at_run_place(Action::Kubeconfig("demo".to_owned()))]);
        let both = warn_moved_from("https://[fd00::2]:443", json!({}));
        assert_eq!(
            both.lone_flags(),
            [&Flag::set_value("exposure.host", "fd00::2"), &Flag::set_value("exposure.port", "443")]
        );
        let port = warn_moved_from("https://10.0.0.1:31234", json!({"port": 443}));
        assert_eq!(port.lone_flags(), [&Flag::set_value("exposure.port", "31234")]);
        let agents = warn_moved_from("https://10.0.0.2:31234", json!({"agentEndpoint": "agents.example:443"}));
        assert!(agents.joined_text().contains(": kubeconfigs with") && agents.commands().len() == 1, "{agents:?}");
        // A first install has told nobody anything.
        let first = moved_endpoint_warning(
            &BTreeMap::new(),
            &behind(ExposureType::NodePort, json!({})),
            &exposure(json!({})),
            "demo",
        );
        assert_eq!(first, None);
    }

    /// A Service whose port has these fields of a manager.
    fn build_managed_service(manager: &str, operation: &str, fields: serde_json::Value) -> Service {
        service(json!({
            "metadata": {"name": "apiserver", "managedFields": [{"manager": manager, "operation": operation,
                "fieldsV1": {"f:spec": {"f:ports": {r#"k:{"port":443,"protocol":"TCP"}"#: fields}}}}]},
            "spec": {"ports": [{"port": 443, "nodePort": 31234}]},
        }))
    }

    #[test]
    fn a_node_port_from_before_is_rendered_where_the_service_is_made_anew_and_stays_so() {
        assert_eq!(former_node_port(None, 31234), Some(31234));
        let rendered = json!({".": {}, "f:port": {}, "f:nodePort": {}});
        assert_eq!(
            former_node_port(Some(&build_managed_service(MANAGER, "Apply", rendered.clone())), 31234),
            Some(31234)
        );
        // It was left to the cluster, or somebody has changed it since.
        let left = json!({".": {}, "f:port": {}});
        assert_eq!(former_node_port(Some(&build_managed_service(MANAGER, "Apply", left)), 31234), None);
        assert_eq!(former_node_port(Some(&build_managed_service("kubectl-edit", "Update", rendered)), 31234), None);
    }
}
