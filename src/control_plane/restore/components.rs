//! Names of the components of a control plane, as its workloads and their pods have them.

/// Name of etcd's StatefulSet.
pub(super) const ETCD: &str = "etcd";
/// Name of the API server's Deployment, and of its Service.
pub(super) const API_SERVER: &str = "apiserver";
/// The Deployments that change what is stored, without the API server.
pub(super) const CONTROLLERS: [&str; 2] = ["fleet-scheduler", "kube-controller-manager"];
/// All components.
pub(super) const COMPONENTS: [&str; 4] = [ETCD, API_SERVER, CONTROLLERS[0], CONTROLLERS[1]];

/// Label with the name of a component on its pods.
pub(super) const LABEL_COMPONENT: &str = "app.kubernetes.io/name";
