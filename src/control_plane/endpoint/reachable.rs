//! Addresses at which no client reaches an API server: they stand for any address, for many, or for one of a single link.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::pki::San;

/// Use of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::control_plane) enum Role {
    /// The `server` of kubeconfigs of people, who may be on the machine of the API server.
    Kubeconfig,
    /// The `server` of agents, which run in pods.
    Agent,
    /// A name in the certificate only.
    Certificate,
}

/// Returns the reason that no client reaches an address, as a clause; none where one may. A text that is no address has none.
pub(in crate::control_plane) fn explain_unreachable(text: &str, role: Role) -> Option<&'static str> {
    match text.parse::<San>().ok()? {
        San::Dns(name) if name.starts_with("*.") && role != Role::Certificate => {
            Some("it is a wildcard; a client needs a single host name")
        }
        San::Dns(name) => {
            let is_local = name == "localhost" || name.ends_with(".localhost");
            (is_local && role == Role::Agent).then_some("in the pod of an agent, it refers to the pod itself")
        }
        San::Ip(IpAddr::V4(address)) => explain_unreachable_v4(address, role),
        San::Ip(IpAddr::V6(address)) => match address.to_ipv4_mapped() {
            Some(mapped) => explain_unreachable_v4(mapped, role),
            None => explain_unreachable_v6(address, role),
        },
    }
}

fn explain_unreachable_v4(address: Ipv4Addr, role: Role) -> Option<&'static str> {
    match () {
        // RFC 791 and 1122: all of 0.0.0.0/8 is "this network".
        () if address.octets()[0] == 0 => Some("it stands for every address of a machine, not for one"),
        () if address.is_broadcast() => Some("it is the broadcast address"),
        () if address.is_multicast() => Some("it is a multicast address"),
        () if address.is_link_local() => Some("it is a link-local address, which is valid on one network link only"),
        () if address.is_loopback() && role == Role::Agent => {
            Some("in the pod of an agent, it refers to the pod itself")
        }
        () => None,
    }
}

fn explain_unreachable_v6(address: Ipv6Addr, role: Role) -> Option<&'static str> {
    match () {
        () if address.is_unspecified() => Some("it stands for every address of a machine, not for one"),
        () if address.is_multicast() => Some("it is a multicast address"),
        () if address.is_unicast_link_local() => {
            Some("it is a link-local address, which is valid on one network link only")
        }
        () if address.is_loopback() && role == Role::Agent => {
            Some("in the pod of an agent, it refers to the pod itself")
        }
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether an address is unreachable in each role.
    fn list_unreachable(text: &str) -> [bool; 3] {
        [Role::Kubeconfig, Role::Agent, Role::Certificate].map(|role| explain_unreachable(text, role).is_some())
    }

    #[test]
    fn an_address_that_no_client_reaches_is_known() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "239.255.255.255",
            "169.254.169.254",
            "::",
            "[::]",
            "ff02::1",
            "fe80::1",
            "febf::1",
            "::ffff:0.0.0.0",
            "::ffff:169.254.1.1",
            "0:0:0:0:0:0:0:0",
        ] {
            assert_eq!(list_unreachable(text), [true; 3], "{text}");
        }
        for text in ["127.0.0.1", "::1", "localhost", "api.localhost"] {
            assert_eq!(list_unreachable(text), [false, true, false], "{text}");
        }
        assert_eq!(list_unreachable("*.example.com"), [true, true, false]);
        for text in [
            "10.0.0.1",
            "192.0.2.10",
            "100.64.0.1",
            "240.0.0.1",
            "1.0.0.0",
            "2001:db8::10",
            "fd00::1",
            "fec0::1",
            "api.example.com",
            "not an address",
        ] {
            assert_eq!(list_unreachable(text), [false; 3], "{text}");
        }
    }
}
