//! The addresses that a certificate answers for, and the address that a kubeconfig names.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::PkiError;

/// One subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum San {
    /// A DNS name in lower case; its first label may be `*`.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

impl San {
    /// Returns the name as rcgen takes it.
    pub(super) fn to_rcgen(&self) -> Result<rcgen::SanType, PkiError> {
        Ok(match self {
            Self::Ip(ip) => rcgen::SanType::IpAddress(*ip),
            Self::Dns(name) => {
                rcgen::SanType::DnsName(name.clone().try_into().map_err(|_| PkiError::Address { text: name.clone() })?)
            }
        })
    }
}

fn is_dns_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

impl FromStr for San {
    type Err = PkiError;

    /// Reads an IP address (brackets around IPv6 are allowed) or a DNS name.
    fn from_str(text: &str) -> Result<Self, PkiError> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse() {
            return Ok(Self::Ip(ip));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let labels = name.strip_prefix("*.").unwrap_or(&name);
        // Four numbers that are no IPv4 address (`10.0.0.300`) are a slip, not a DNS name.
        let only_numbers = labels.chars().all(|c| c.is_ascii_digit() || c == '.');
        if name.len() > 253 || only_numbers || !labels.split('.').all(is_dns_label) {
            return Err(PkiError::Address { text: text.to_owned() });
        }
        Ok(Self::Dns(name))
    }
}

impl fmt::Display for San {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

/// Address at which an API server is reached: host and port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// A DNS name or an IP address.
    pub host: San,
    /// The TCP port.
    pub port: u16,
}

impl Endpoint {
    /// Reads the `server` of a kubeconfig.
    ///
    /// # Errors
    /// [`PkiError::Address`].
    pub fn from_url(server: &str) -> Result<Self, PkiError> {
        if let Ok(uri) = server.parse::<http::Uri>()
            && let Some(host) = uri.host()
        {
            return Ok(Self { host: host.parse()?, port: uri.port_u16().unwrap_or(443) });
        }
        Err(PkiError::Address { text: server.to_owned() })
    }

    /// The `server` of a kubeconfig; IPv6 addresses are in brackets.
    pub fn endpoint_url(&self) -> String {
        match &self.host {
            San::Ip(IpAddr::V6(ip)) => format!("https://[{ip}]:{}", self.port),
            host => format!("https://{host}:{}", self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_ip_or_dns_name() {
        for (text, expected) in [
            ("10.0.0.1", San::Ip([10, 0, 0, 1].into())),
            ("[::1]", San::Ip("::1".parse().unwrap())),
            ("API.Example.com.", San::Dns("api.example.com".to_owned())),
            ("*.fleet.svc", San::Dns("*.fleet.svc".to_owned())),
        ] {
            assert_eq!(text.parse::<San>().unwrap(), expected);
        }
    }

    #[test]
    fn what_no_certificate_can_carry_is_refused() {
        for text in ["", "*", "a..b", "-a.b", "a b", "https://a", "a:443", "10.0.0.300", "*.*.a", "ä.example"] {
            assert!(text.parse::<San>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_server_url_has_ipv6_in_brackets() {
        for (host, url) in [
            ("fd00::1", "https://[fd00::1]:6443"),
            ("10.0.0.1", "https://10.0.0.1:6443"),
            ("fleet.example", "https://fleet.example:6443"),
        ] {
            assert_eq!(Endpoint { host: host.parse().unwrap(), port: 6443 }.endpoint_url(), url);
        }
    }
}
