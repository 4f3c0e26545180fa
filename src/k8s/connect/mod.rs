//! From a kubeconfig to a client: which file and context, TLS and trust, credentials, proxies, and what a failed connection
//! means.

pub mod connect_error;
pub(crate) mod connection;
mod credential;
pub mod daemon_client;
pub(crate) mod exec_plugin;
pub mod init_kubeconfig;
pub mod kubeconfig;
pub mod kubeconfig_check;
pub(crate) mod port_forward;
pub mod proxy;
pub(in crate::k8s) mod proxy_connector;
pub(crate) mod served;
pub(crate) mod server_identity;
mod tls;
mod trust;
