//! An object whose Schedule the API server would refuse is its own fault: the others of its group are placed.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};

use super::*;

#[tokio::test]
async fn what_cannot_be_copied_harms_no_other_member_of_its_group() {
    let fleet = Fleet::new().await;
    let member = fleet.join(2).await;
    let kinds = json!({"labelSelectors": [{}], "kinds": [{"group": "", "kind": "ConfigMap"}]});
    let policy = fleet
        .policy(json!({"resourceSelectors": kinds, "groupBy": {"labelKey": "app"},
            "clusterSelector": {"matchLabels": {"kubernetes.io/metadata.name": member.name}}}))
        .await;
    let maps: Api<ConfigMap> = Api::namespaced(fleet.client(), &fleet.namespace);
    let paths: Vec<String> = (0..33).map(|number| format!("data.k{number}")).collect();
    for (name, text, annotations) in [
        ("large", "\\".repeat(395_000), json!({})),
        ("paths", String::new(), json!({"fleet-scheduler.io/leave-fields": paths.join(",")})),
        ("whole", "a".to_owned(), json!({})),
    ] {
        let meta = json!({"name": name, "labels": {"app": "web"}, "annotations": annotations});
        let body = serde_json::from_value(json!({"metadata": meta, "data": {"k": text}})).unwrap();
        maps.create(&PostParams::default(), &body).await.unwrap();
    }
    fleet.copy(&member.name, "ConfigMap whole").await;
    wait("the group names all and says what is missing", async || {
        let [group] = &fleet.groups(&policy).await[..] else { return false };
        let status = group.status.clone().unwrap_or_default();
        let row = status.clusters.iter().find(|row| row.name == member.name);
        status.object_refs.len() == 3
            && row.is_some_and(|row| row.objects == Some(3) && row.message.contains("large: TooLarge"))
    })
    .await;
    wait("the healthy one has its label", async || {
        maps.get("whole").await.unwrap().labels().get(LABEL_TARGET_CLUSTER) == Some(&member.name)
    })
    .await;
    let events: Api<Event> = Api::namespaced(fleet.client(), &fleet.namespace);
    for (name, reason) in [("large", "TooLarge"), ("paths", "Invalid")] {
        wait(&format!("{name} has the event {reason}"), async || {
            let all = events.list(&ListParams::default()).await.unwrap().items;
            all.iter().any(|event| {
                event.involved_object.name.as_deref() == Some(name) && event.reason.as_deref() == Some(reason)
            })
        })
        .await;
        let report = why(&fleet.stage.hub.kubeconfig, &format!("configmap/{name}"), &fleet.namespace, 7);
        assert!(report["notes"].to_string().contains(reason), "{report}");
    }
    assert!(!fleet.copies(&member.name).await.contains_key("ConfigMap large"));

    // Once they are as they can be, they come too.
    let repaired = json!({"metadata": {"annotations": {"fleet-scheduler.io/leave-fields": null}}, "data": {"k": "b"}});
    for name in ["large", "paths"] {
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&repaired)).await.unwrap();
        fleet.copy(&member.name, &format!("ConfigMap {name}")).await;
    }

    // What nobody here foresees is refused by the API server: a policy of its own that forbids one label.
    let forbidden = fresh("refused");
    let rules = json!([{"apiGroups": ["cluster.fleet-scheduler.io"], "apiVersions": ["*"], "operations": ["CREATE"],
        "resources": ["schedules"]}]);
    let expression = format!("!object.spec.sourceRef.name.startsWith('{forbidden}')");
    let admission: Api<ValidatingAdmissionPolicy> = Api::all(fleet.client());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fleet.client());
    let body = json!({"metadata": {"name": forbidden}, "spec": {"failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": expression, "message": "not with this name"}]}});
    admission.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    let body = json!({"metadata": {"name": forbidden},
        "spec": {"policyName": forbidden, "validationActions": ["Deny"]}});
    bindings.create(&PostParams::default(), &serde_json::from_value(body).unwrap()).await.unwrap();
    wait("the API server refuses it", async || {
        let schedule = json!({"apiVersion": "cluster.fleet-scheduler.io/v1alpha1", "kind": "Schedule",
            "metadata": {"name": forbidden}, "spec": {"manifest": "{}", "hash": "0", "sourceRef": {"group": "",
                "version": "v1", "kind": "ConfigMap", "name": forbidden, "uid": "u", "generation": 0}}});
        let params = PostParams { dry_run: true, ..PostParams::default() };
        let answer = fleet.schedules(&member.name).create(&params, &serde_json::from_value(schedule).unwrap()).await;
        matches!(answer, Err(kube::Error::Api(status)) if status.message.contains("not with this name"))
    })
    .await;
    for name in [forbidden.as_str(), "later"] {
        let meta = json!({"name": name, "labels": {"app": "web"}});
        let body = serde_json::from_value(json!({"metadata": meta, "data": {"k": "a"}})).unwrap();
        maps.create(&PostParams::default(), &body).await.unwrap();
    }
    fleet.copy(&member.name, "ConfigMap later").await;
    wait("the group says why", async || {
        let [group] = &fleet.groups(&policy).await[..] else { return false };
        let rows = group.status.clone().unwrap_or_default().clusters;
        rows.iter().any(|row| row.message.contains("not with this name"))
    })
    .await;
    wait("the member says so", async || {
        let report = why(&fleet.stage.hub.kubeconfig, &format!("configmap/{forbidden}"), &fleet.namespace, 7);
        report["notes"].to_string().contains("not with this name")
    })
    .await;
    bindings.delete(&forbidden, &DeleteParams::default()).await.unwrap();
    admission.delete(&forbidden, &DeleteParams::default()).await.unwrap();
    fleet.end(&[policy]).await;
}
