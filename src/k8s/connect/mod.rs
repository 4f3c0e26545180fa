//! TODO.

pub mod connect_error;
pub(crate) mod connection;
pub(super) mod credential;
pub mod daemon_client;
pub(super) mod exec_plugin;
pub mod init_kubeconfig;
pub mod kubeconfig;
pub mod kubeconfig_check;
pub mod proxy;
pub(crate) mod server_identity;
pub(super) mod tls;
pub(super) mod trust;
