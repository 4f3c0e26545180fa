//! Relations of manifests.
