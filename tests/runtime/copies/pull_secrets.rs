//! Pull secrets of ServiceAccounts: what others have put into the list of an account stays there.

use k8s_openapi::api::core::v1::ServiceAccount;

use super::*;

/// Adds the account that controllers make in every namespace, where none runs.
async fn ensure_default_account(accounts: &Api<ServiceAccount>) {
    let body = serde_json::from_value(json!({ "metadata": { "name": "default" } })).unwrap();
    match accounts.create(&PostParams::default(), &body).await {
        Ok(_) => {}
        Err(kube::Error::Api(answer)) if answer.code == 409 => {}
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn pull_secrets_are_added_to_those_of_others_and_taken_out_again() {
    let site = Site::set().await;
    site.make_place().await;
    let accounts: Api<ServiceAccount> = site.in_place();
    ensure_default_account(&accounts).await;
    let before = accounts.get("default").await.unwrap();
    let theirs = json!({ "imagePullSecrets": [{ "name": "theirs" }] });
    accounts.patch("default", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let listed = async |name: &str| {
        let list = accounts.get(name).await.unwrap().image_pull_secrets.unwrap_or_default();
        list.into_iter().map(|secret| secret.name).collect::<Vec<_>>()
    };
    let manifest = |name: &str, secrets: &[&str]| {
        let list: Vec<Value> = secrets.iter().map(|name| json!({ "name": name })).collect();
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "imagePullSecrets": list,
            "metadata": { "name": name, "namespace": site.place } })
    };

    // Every cluster has this one by itself: it is changed without leave, and never replaced.
    site.schedule("default", &manifest("default", &["a", "b"]), json!({})).await;
    site.until("default", "Applied").await;
    assert_eq!(listed("default").await, ["theirs", "a", "b"]);
    site.schedule("default", &manifest("default", &["b"]), json!({})).await;
    wait("what is not wanted any more goes", async || listed("default").await == ["theirs", "b"]).await;
    assert_eq!(site.delete("default").await.0, "Kept");
    let after = accounts.get("default").await.unwrap();
    assert_eq!((listed("default").await, after.uid()), (vec!["theirs".to_owned()], before.uid()));
    assert!(after.labels().is_empty() && after.annotations().is_empty(), "{after:?}");

    // Names that a controller of the cluster adds to a copy stay, as those of OpenShift do.
    site.schedule("web", &manifest("web", &["a"]), json!({})).await;
    site.until("web", "Applied").await;
    let more = json!({ "imagePullSecrets": [{ "name": "a" }, { "name": "dockercfg" }] });
    accounts.patch("web", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    site.schedule("web", &manifest("web", &["b"]), json!({})).await;
    wait("both are there", async || listed("web").await == ["dockercfg", "b"]).await;
    assert_eq!(site.delete("web").await.0, "Deleted");
    assert!(accounts.get_opt("web").await.unwrap().is_none());
    site.leave().await;
}
