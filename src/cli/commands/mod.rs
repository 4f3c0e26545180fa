//! One file or folder per command: its arguments, and what it does with them.

pub(in crate::cli) mod accept;
pub(in crate::cli) mod certs;
pub(in crate::cli) mod check;
pub(in crate::cli) mod completion;
pub(in crate::cli) mod delete;
pub(in crate::cli) mod diff;
pub(in crate::cli) mod explain;
pub(in crate::cli) mod get;
pub(in crate::cli) mod history;
pub(in crate::cli) mod install;
pub(in crate::cli) mod kubeconfig;
pub(in crate::cli) mod kubectl_install;
pub(in crate::cli) mod lint;
pub(in crate::cli) mod pods;
pub(in crate::cli) mod reference;
pub(in crate::cli) mod rollback;
pub(in crate::cli) mod show;
pub(in crate::cli) mod status;
pub(in crate::cli) mod taint;
pub(in crate::cli) mod template;
pub(in crate::cli) mod token;
pub(in crate::cli) mod uninstall;
pub(in crate::cli) mod upgrade;
pub(in crate::cli) mod version;
pub(in crate::cli) mod versions;
pub(in crate::cli) mod why;
