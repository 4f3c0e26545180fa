//! Peers of network policies, held against what Kubernetes takes.

use std::net::IpAddr;

use super::ValuesTree;
use crate::api::values::network_policy::NetworkPeer;
use crate::chart::diagnostic::Diagnostic;

/// Returns whether it is a range of addresses, as a Service of type LoadBalancer takes it.
pub fn is_range(text: &str) -> bool {
    let Some((address, prefix)) = text.trim().split_once('/') else { return false };
    let longest = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    prefix.bytes().all(|byte| byte.is_ascii_digit()) && prefix.parse::<u8>().is_ok_and(|length| length <= longest)
}

/// Checks peers at `path`; `tree` knows where each was given.
pub fn check_peers(path: &[&str], peers: &[NetworkPeer], tree: &ValuesTree) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for (index, peer) in peers.iter().enumerate() {
        let index = index.to_string();
        let here = [path, &[index.as_str()]].concat();
        let selects = peer.namespace_selector.is_some() || peer.pod_selector.is_some();
        if selects == peer.ip_block.is_some() {
            let message = "a peer must have either selectors or an `ipBlock`";
            let help = "give `namespaceSelector`, `podSelector` or both; or `ipBlock` alone";
            found.push(tree.locate_diagnostic(&here, Diagnostic::error("wrong-peer", message).help(help)));
        }
        if let Some(block) = peer.ip_block.as_ref().filter(|block| !is_range(&block.cidr)) {
            let diagnostic = Diagnostic::error("wrong-address", format!("`{}` is not a CIDR range", block.cidr))
                .label("expected an address and a prefix length, such as `10.0.0.0/8`");
            found.push(tree.locate_diagnostic(&[&here[..], &["ipBlock", "cidr"]].concat(), diagnostic));
        }
    }
    found
}
