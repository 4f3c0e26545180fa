//! Keys, certificates and kubeconfigs.
