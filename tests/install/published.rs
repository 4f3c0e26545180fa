//! Manifests of the form of those that are published for one cluster, applied to a control plane: they act there on nothing.

use crate::support::{Site, eventually};

/// Values of a control plane and of an agent by which configurations of webhooks are placed.
pub(crate) const PLACED: &str =
    r#"[{"group":"admissionregistration.k8s.io","version":"v1","kind":"ValidatingWebhookConfiguration"}]"#;
pub(crate) const PLACED_THERE: &str = r#"[{"group":"admissionregistration.k8s.io","version":"v1","kind":"ValidatingWebhookConfiguration","resource":"validatingwebhookconfigurations"}]"#;

/// Webhooks of an ingress controller, of an issuer of certificates, and of a policy engine that looks at everything; and the
/// definition of certificates, with an older version that a Service converts.
const STORED: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: doorman-admission}
webhooks:
- name: validate.doorman.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: doorman-admission, namespace: doorman, path: /networking/v1/ingresses}}
  failurePolicy: Fail
  matchPolicy: Equivalent
  sideEffects: None
  rules:
  - {apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: notary-webhook}
webhooks:
- name: webhook.notary.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: notary-webhook, namespace: notary, path: /mutate}}
  failurePolicy: Fail
  sideEffects: None
  rules:
  - {apiGroups: [notary.example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: ["*/*"]}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: customs-everything}
webhooks:
- name: everything.customs.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: customs, namespace: customs, path: /validate}}
  failurePolicy: Fail
  sideEffects: NoneOnDryRun
  rules:
  - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*/*"]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: deeds.notary.example.com}
spec:
  group: notary.example.com
  scope: Namespaced
  names: {kind: Deed, plural: deeds, singular: deed}
  conversion:
    strategy: Webhook
    webhook:
      conversionReviewVersions: [v1]
      clientConfig: {service: {name: notary-webhook, namespace: notary, path: /convert}}
  versions:
  - {name: v1, served: true, storage: true, schema: &any {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v1beta1, served: true, storage: false, schema: *any}
"#;

/// A webhook that a cluster is to have as it is, and that no object there matches.
const PLACED_WEBHOOK: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata:
  name: doorman-of-nobody
  annotations: {fleet-scheduler.io/cluster: west}
webhooks:
- name: validate.doorman.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {name: doorman-admission, namespace: doorman, path: /networking/v1/ingresses}}
  failurePolicy: Fail
  sideEffects: None
  objectSelector: {matchLabels: {doorman.example.com/nobody: nobody}}
  rules:
  - {apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [ingresses]}
";

/// The API of a metrics server.
const API_SERVICE: &str = "
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.custom.metrics.k8s.io}
spec:
  group: custom.metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
  service: {name: gauge-adapter, namespace: gauge}
";

/// Objects of many kinds that such webhooks would refuse.
const TRIED: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: one, namespace: tried}
spec: {defaultBackend: {service: {name: one, port: {number: 80}}}}
---
{apiVersion: notary.example.com/v1, kind: Deed, metadata: {name: one, namespace: tried}, spec: {}}
---
{apiVersion: v1, kind: Service, metadata: {name: one, namespace: tried}, spec: {ports: [{port: 80}]}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: one, namespace: tried}, rules: []}
";

fn file(site: &Site, name: &str, text: &str) -> String {
    let file = site.home().join(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// Applies all of it to the control plane of a site whose cluster is registered as `west`, and finds that requests, Leases, the
/// end of a namespace and placement are what they were. What is placed later is refused by none of it.
pub(crate) fn acts_on_nothing(site: &Site) {
    site.hub(&["apply", "-f", &file(site, "stored.yaml", STORED)]);
    let refused = site.asks_hub(&["apply", "-f", &file(site, "api-service.yaml", API_SERVICE)]).unwrap_err();
    let said = "Service gauge/gauge-adapter cannot answer for this APIService";
    assert!(refused.contains(said) && refused.contains("apply the APIService to the workload clusters"), "{refused}");
    // The older version stored would have to be converted for everybody who lists.
    let older = STORED.replace("storage: true", "storage: x").replace("storage: false", "storage: true");
    let older = older.replace("storage: x", "storage: false").replace("deeds", "wills").replace("deed", "will");
    let older = older.split("---").last().unwrap().replace("Deed", "Will");
    let refused = site.asks_hub(&["apply", "-f", &file(site, "older.yaml", &older)]).unwrap_err();
    assert!(refused.contains("cannot convert objects that are stored in v1beta1"), "{refused}");

    let renewed = |namespace: &str, name: &str| {
        site.hub(&["-n", namespace, "get", "lease", name, "-o", "jsonpath={.spec.renewTime}"])
    };
    let leases = [("kube-system", "fleet-scheduler"), ("fleet-c-west", "fleet-agent")];
    let before = leases.map(|(namespace, name)| renewed(namespace, name));
    site.hub(&["create", "namespace", "tried"]);
    site.hub(&["wait", "--for=condition=Established", "crd/deeds.notary.example.com", "--timeout=60s"]);
    site.hub(&["create", "-f", &file(site, "tried.yaml", TRIED)]);
    site.hub(&["-n", "tried", "get", "ingress,deeds,service,role", "-o", "name"]);
    site.hub(&["delete", "namespace", "tried", "--timeout=120s"]);
    eventually("renewals of Leases", || {
        leases.iter().zip(&before).all(|((namespace, name), before)| renewed(namespace, name) != *before)
    });

    let status = site.fleetctl(&["status", "-o", "json"]);
    let status: serde_json::Value = serde_json::from_str(status.succeeds()).unwrap();
    let checks = status["checks"].as_array().unwrap();
    let own = checks.iter().filter(|check| check["id"].as_str().is_some_and(|id| id.starts_with("hub-")));
    assert!(own.clone().count() == 4 && own.clone().all(|check| check["verdict"] == "passed"), "{status}");
    let webhooks = checks.iter().find(|check| check["id"] == "hub-webhooks").unwrap();
    assert_eq!(webhooks["message"], "3 configurations are stored for workload clusters and not called here");

    // In a workload cluster it is what it is.
    site.hub(&["apply", "-f", &file(site, "placed.yaml", PLACED_WEBHOOK)]);
    let hooks = |from: &dyn Fn(&[&str]) -> String| {
        from(&[
            "get",
            "validatingwebhookconfigurations",
            "doorman-of-nobody",
            "--ignore-not-found",
            "-o",
            "jsonpath={.webhooks}",
        ])
    };
    let source = hooks(&|args| site.hub(args));
    eventually("the webhook in the cluster", || hooks(&|args| site.kubectl(args)) == source);
    site.hub(&["delete", "-f", &file(site, "placed.yaml", PLACED_WEBHOOK)]);
    eventually("the end of the webhook in the cluster", || hooks(&|args| site.kubectl(args)).is_empty());
}
