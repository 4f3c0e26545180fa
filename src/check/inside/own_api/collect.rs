//! Reads what acts on the API server of a control plane, and keeps what can stop requests of others.

use kube::Client;
use kube::core::Version;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::admission_policies::{self, Binding, Policy};
use super::{OwnApi, Served, Webhook};
use crate::api::admission::{MUTATING_WEBHOOK, VALIDATING_WEBHOOK};
use crate::api::first_of::first_of;
use crate::api::partial_list::{self, Age};
use crate::check::inside::collect::{Condition, Conditions, Named, if_defined};
use crate::k8s::describe_error;

/// Number of parts of one object that are named at most.
const NAMED: usize = 3;

/// Part of a definition that says which versions its objects have.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::check::inside) struct Definition {
    pub(in crate::check::inside) metadata: Named,
    pub(in crate::check::inside) spec: DefinitionSpec,
    #[serde(default)]
    pub(in crate::check::inside) status: DefinitionStatus,
}

#[derive(Debug, Deserialize)]
pub(in crate::check::inside) struct DefinitionSpec {
    pub(in crate::check::inside) group: String,
    pub(in crate::check::inside) names: Names,
    #[serde(default)]
    versions: Vec<DefinedVersion>,
    #[serde(default)]
    conversion: Conversion,
}

#[derive(Debug, Deserialize)]
pub(in crate::check::inside) struct Names {
    pub(in crate::check::inside) kind: String,
}

#[derive(Debug, Deserialize)]
struct DefinedVersion {
    name: String,
    #[serde(default)]
    served: bool,
    #[serde(default)]
    storage: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Conversion {
    #[serde(default)]
    webhook: Option<Converter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Converter {
    #[serde(default)]
    client_config: Called,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::check::inside) struct DefinitionStatus {
    #[serde(default)]
    pub(in crate::check::inside) conditions: Vec<Condition>,
    #[serde(default)]
    stored_versions: Vec<String>,
}

/// How something is called: by a Service, or by a URL.
#[derive(Debug, Default, Deserialize)]
struct Called {
    #[serde(default)]
    service: Option<ServiceName>,
}

#[derive(Debug, Deserialize)]
struct ServiceName {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
}

impl ServiceName {
    fn format_service_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// Part of a configuration of webhooks.
#[derive(Debug, Deserialize)]
struct Configuration {
    metadata: Named,
    #[serde(default)]
    webhooks: Vec<ConfiguredWebhook>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfiguredWebhook {
    #[serde(default)]
    client_config: Called,
    #[serde(default)]
    failure_policy: Option<String>,
    #[serde(default)]
    rules: Vec<Rule>,
}

/// Requests by their operation and by the resource that they are about.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rule {
    operations: Vec<String>,
    pub(super) api_groups: Vec<String>,
    pub(super) resources: Vec<String>,
}

impl Rule {
    fn format_rule(&self) -> String {
        let operations =
            if names_everything(&self.operations) { "every request".to_owned() } else { self.operations.join(", ") };
        if names_everything(&self.api_groups) && names_everything(&self.resources) {
            return format!("{operations} of every kind");
        }
        let group = match self.api_groups.as_slice() {
            [group] if group.is_empty() => String::new(),
            [group] => format!(".{group}"),
            _ => format!(" of {}", first_of(&self.api_groups, NAMED, ", ")),
        };
        let resources = self.resources.iter().map(|resource| format!("{resource}{group}"));
        format!("{operations} of {}", first_of(resources, NAMED, ", "))
    }
}

fn names_everything(words: &[String]) -> bool {
    words.iter().any(|word| word == "*" || word == "*/*")
}

/// Part of an APIService.
#[derive(Debug, Deserialize)]
struct Aggregated {
    metadata: Named,
    #[serde(default)]
    spec: Called,
    #[serde(default)]
    status: Conditions,
}

fn collect_webhooks(kind: &'static str, plugin: &'static str, found: Vec<Configuration>) -> Vec<Webhook> {
    let mut webhooks = Vec::new();
    for Configuration { metadata, webhooks: configured } in found {
        let must_answer = configured
            .iter()
            .filter(|one| one.client_config.service.is_some() && one.failure_policy.as_deref() != Some("Ignore"));
        let requests: Vec<String> = must_answer.flat_map(|one| &one.rules).map(Rule::format_rule).collect();
        if !requests.is_empty() {
            let requests = first_of(requests, NAMED, "; ");
            webhooks.push(Webhook { kind, plugin, configuration: metadata.name, requests });
        }
    }
    webhooks
}

fn api_services(found: Vec<Aggregated>) -> Vec<Served> {
    let silent = found.into_iter().filter(|service| {
        !service.status.conditions.iter().any(|one| one.type_ == "Available" && one.status == "True")
    });
    silent
        .filter_map(|one| Some(Served { name: one.metadata.name, service: one.spec.service?.format_service_name() }))
        .collect()
}

/// Returns the definitions of which objects must be converted by a Service when they are listed: those that are stored
/// in another version than the one that controllers ask for, which is the served version of the highest priority.
pub(in crate::check::inside) fn find_converted_kinds(found: &[Definition]) -> Vec<Served> {
    let converted = found.iter().filter(|definition| is_stored_differently(definition)).filter_map(|definition| {
        let service = definition.spec.conversion.webhook.as_ref()?.client_config.service.as_ref()?;
        Some(Served { name: definition.metadata.name.clone(), service: service.format_service_name() })
    });
    converted.collect()
}

fn is_stored_differently(definition: &Definition) -> bool {
    let versions = &definition.spec.versions;
    let asked = versions.iter().filter(|version| version.served);
    let Some(asked) = asked.max_by_key(|version| Version::parse(&version.name).priority()) else { return false };
    let stored = versions.iter().filter(|version| version.storage).map(|version| &version.name);
    stored.chain(&definition.status.stored_versions).any(|stored| *stored != asked.name)
}

/// Objects of a kind of one API group; none where it is not served.
async fn list_if_served<T: DeserializeOwned + Send + 'static>(hub: &Client, path: &str) -> Result<Vec<T>, kube::Error> {
    if_defined(partial_list::list_at(hub, &format!("/apis/{path}"), Age::Now).await)
}

/// Reads it all at once, except for the conversions, whose definitions are read for other checks too.
pub(in crate::check::inside) async fn own_api(hub: &Client) -> OwnApi {
    read_own_api(hub).await.unwrap_or_else(|error| OwnApi { unread: Some(describe_error(&error)), ..OwnApi::default() })
}

async fn read_own_api(hub: &Client) -> Result<OwnApi, kube::Error> {
    let paths = [
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ]
    .map(|plural| format!("admissionregistration.k8s.io/v1/{plural}"));
    let (mutating, validating, policies, bindings, mutating_policies, mutating_bindings, aggregated) = tokio::try_join!(
        list_if_served::<Configuration>(hub, &paths[0]),
        list_if_served::<Configuration>(hub, &paths[1]),
        list_if_served::<Policy>(hub, &paths[2]),
        list_if_served::<Binding>(hub, &paths[3]),
        list_if_served::<Policy>(hub, &paths[4]),
        list_if_served::<Binding>(hub, &paths[5]),
        list_if_served::<Aggregated>(hub, "apiregistration.k8s.io/v1/apiservices"),
    )?;
    let mut found = collect_webhooks("MutatingWebhookConfiguration", MUTATING_WEBHOOK, mutating);
    found.extend(collect_webhooks("ValidatingWebhookConfiguration", VALIDATING_WEBHOOK, validating));
    let mut matching =
        admission_policies::find_matching_bindings("ValidatingAdmissionPolicyBinding", &policies, &bindings);
    matching.extend(admission_policies::find_matching_bindings(
        "MutatingAdmissionPolicyBinding",
        &mutating_policies,
        &mutating_bindings,
    ));
    Ok(OwnApi { webhooks: found, api_services: api_services(aggregated), policies: matching, ..OwnApi::default() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn definition(versions: &Value, stored: &Value) -> Definition {
        let service = json!({"clientConfig": {"service": {"namespace": "operators", "name": "widgets"}}});
        from_value(json!({"metadata": {"name": "widgets.example.com"}, "spec": {"group": "example.com",
            "names": {"kind": "Widget"}, "versions": versions, "conversion": {"strategy": "Webhook", "webhook": service}},
            "status": {"storedVersions": stored}}))
        .unwrap()
    }

    fn served_version(name: &str, storage: bool) -> Value {
        json!({"name": name, "served": true, "storage": storage})
    }

    fn is_converted(versions: &Value, stored: &Value) -> bool {
        !find_converted_kinds(&[definition(versions, stored)]).is_empty()
    }

    #[test]
    fn a_definition_is_converted_where_it_is_stored_in_another_version_than_is_asked_for() {
        let newest = json!([served_version("v1beta1", false), served_version("v1", true)]);
        assert!(!is_converted(&newest, &json!(["v1"])), "what is asked for is what is stored");
        assert!(is_converted(&newest, &json!(["v1beta1", "v1"])), "some may be stored in the older version");
        assert!(is_converted(
            &json!([served_version("v1", false), served_version("v1beta1", true)]),
            &json!(["v1beta1"])
        ));
        assert!(!is_converted(&json!([served_version("v2", true), served_version("v1", false)]), &json!(["v2"])));
        let without = Definition {
            spec: DefinitionSpec { conversion: Conversion::default(), ..definition(&newest, &json!(["v1beta1"])).spec },
            ..definition(&newest, &json!(["v1beta1"]))
        };
        assert_eq!(find_converted_kinds(&[without]), []);
    }

    fn collect_webhook(webhook: Value) -> Vec<Webhook> {
        let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
        collect_webhooks("K", "P", vec![from_value(configuration).unwrap()])
    }

    #[test]
    fn webhooks_that_need_not_answer_or_are_no_services_are_left_out() {
        let rules = json!([{"operations": ["CREATE", "UPDATE"], "apiGroups": ["networking.k8s.io"], "resources": ["ingresses"]}]);
        let service = json!({"service": {"namespace": "n", "name": "s"}});
        let found = collect_webhook(json!({"clientConfig": service, "rules": rules}));
        assert_eq!(found[0].requests, "CREATE, UPDATE of ingresses.networking.k8s.io");
        assert_eq!(collect_webhook(json!({"clientConfig": service, "failurePolicy": "Ignore", "rules": rules})), []);
        assert_eq!(collect_webhook(json!({"clientConfig": {"url": "https://x.example"}, "rules": rules})), []);
        let all = json!([{"operations": ["*"], "apiGroups": ["*"], "resources": ["*/*"]}]);
        assert_eq!(
            collect_webhook(json!({"clientConfig": service, "rules": all}))[0].requests,
            "every request of every kind"
        );
        let core = json!([{"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods", "services"]}]);
        assert_eq!(
            collect_webhook(json!({"clientConfig": service, "rules": core}))[0].requests,
            "CREATE of pods, services"
        );
    }

    fn collect_api_service(spec: Value, available: &str) -> Vec<Served> {
        let status = json!({"conditions": [{"type": "Available", "status": available}]});
        let found = json!({"metadata": {"name": "v1beta1.metrics.k8s.io"}, "spec": spec, "status": status});
        api_services(vec![from_value(found).unwrap()])
    }

    #[test]
    fn an_api_service_that_answers_or_has_no_service_is_left_out() {
        let service = json!({"service": {"namespace": "kube-system", "name": "metrics-server"}});
        assert_eq!(collect_api_service(service.clone(), "False")[0].service, "kube-system/metrics-server");
        assert_eq!(collect_api_service(service, "True"), []);
        assert_eq!(collect_api_service(json!({"group": "apps"}), "False"), []);
    }
}
