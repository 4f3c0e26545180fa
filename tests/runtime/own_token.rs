//! `fleetctl token create`: a token lets in the cluster that it is for, once.

use std::process::Command;

use fleetctl::api::bootstrap_token;
use fleetctl::k8s::connect::init_kubeconfig::Init;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::ListParams;

use crate::applicant::{Applicant, ControlPlane, fresh};
use crate::support::Stage;

/// What the command prints, read as an agent reads it.
pub(crate) fn created(stage: &Stage, name: &str) -> Init {
    let ran = Command::new(env!("CARGO_BIN_EXE_fleetctl"))
        .args(["token", "create", name, "--ttl", "2h", "--kubeconfig"])
        .arg(&stage.hub.kubeconfig)
        .output()
        .unwrap();
    let says = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success() && says.contains(&format!("register as {name}, once, until")), "{says}");
    let secret: Secret = serde_saphyr::from_str(&String::from_utf8(ran.stdout).unwrap()).unwrap();
    assert_eq!(secret.metadata.name.as_deref(), Some("fleet-cluster-init-kubeconfig"));
    assert_eq!(secret.metadata.namespace.as_deref(), Some("fleet"));
    Init::from_init_secret(&secret).unwrap()
}

/// Time until the token for a cluster expires.
async fn life(stage: &Stage, name: &str) -> SignedDuration {
    let secrets: Api<Secret> = Api::namespaced(stage.hub.client.clone(), bootstrap_token::NAMESPACE);
    let labelled = ListParams::default().labels(&format!("{}={name}", bootstrap_token::LABEL));
    let [token] = <[Secret; 1]>::try_from(secrets.list(&labelled).await.unwrap().items).unwrap();
    let expires = String::from_utf8(token.data.unwrap()[bootstrap_token::EXPIRATION].0.clone()).unwrap();
    expires.parse::<Timestamp>().unwrap().duration_since(Timestamp::now())
}

#[tokio::test]
async fn a_token_lets_in_the_cluster_that_it_is_for_and_no_other_once() {
    let stage = Stage::hub().await;
    let control_plane = ControlPlane::start(&stage, "").await;
    let own = Applicant::new(&fresh("own"));
    let init = created(&stage, &own.name);
    assert_eq!(init.control_plane_digest(), control_plane.init.control_plane_digest());
    let other = Applicant::new(&fresh("other"));
    assert_eq!(other.ask(&init).await, Err("TokenForOtherCluster".to_owned()));
    assert!(life(&stage, &own.name).await > SignedDuration::from_mins(110), "a refusal does not use it up");

    own.ask(&init).await.unwrap();
    assert!(life(&stage, &own.name).await <= SignedDuration::from_mins(10));
    // Whoever reads the Secret until then has no key that is let in.
    assert_eq!(own.with_new_key().ask(&init).await, Err("IdentityInUse".to_owned()));
    // The token that is handed out is for any name, and is not used up.
    other.ask(&control_plane.init).await.unwrap();
    Applicant::new(&fresh("third")).ask(&control_plane.init).await.unwrap();
}
