//! The proxy of the environment, as kubectl takes it: Go's rules for `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.

use std::net::IpAddr;

use http::Uri;

use super::kubeconfig_check::parse_proxy_url;

/// Schemes of a proxy in a variable. Of a kubeconfig, kubectl takes no `socks5h`, which means the same as `socks5` to it.
const SCHEMES: [&str; 4] = ["http", "https", "socks5", "socks5h"];

/// A variable of the environment that is not the URL of a proxy. The URL is not in the error, as it may have a password.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the environment variable {variable} {problem}")]
pub struct ProxyError {
    variable: &'static str,
    problem: String,
}

/// Returns the environment's proxy to a server; `None` where there is none, for what is on this machine, and for what
/// `NO_PROXY` names.
///
/// # Errors
/// The variable of the proxy, where it is not a URL.
pub fn of_environment(server: &Uri) -> Result<Option<Uri>, ProxyError> {
    proxy_from_variables(server, read_variable)
}

/// Returns the name of the variable that has the proxy to a server.
pub(super) fn find_variable(server: &Uri) -> Option<&'static str> {
    find_proxy(server, read_variable).map(|(variable, _)| variable)
}

fn read_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The variable with the proxies to servers of this scheme, and its text.
fn find_proxy(server: &Uri, read: impl Fn(&str) -> Option<String>) -> Option<(&'static str, String)> {
    let names =
        if server.scheme_str() == Some("http") { ["HTTP_PROXY", "http_proxy"] } else { ["HTTPS_PROXY", "https_proxy"] };
    names.into_iter().find_map(|name| read(name).filter(|text| !text.is_empty()).map(|text| (name, text)))
}

/// Returns the same as [`of_environment`] with another way to read variables.
fn proxy_from_variables(server: &Uri, read: impl Fn(&str) -> Option<String>) -> Result<Option<Uri>, ProxyError> {
    let Some((variable, proxy)) = find_proxy(server, &read) else { return Ok(None) };
    // kubectl does not see such a proxy, and connects without it.
    if proxy.starts_with(char::is_whitespace) || proxy.contains(char::is_control) {
        return Ok(None);
    }
    let direct = ["NO_PROXY", "no_proxy"].into_iter().find_map(|name| read(name).filter(|text| !text.is_empty()));
    let Some(destination) = Destination::of_server(server) else { return Ok(None) };
    if destination.is_this_machine() || destination.is_direct(&direct.unwrap_or_default()) {
        return Ok(None);
    }
    let proxy = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
    let url = parse_proxy_url(&proxy, &SCHEMES);
    url.map(Some).map_err(|problem| ProxyError { variable, problem })
}

/// A server, as `NO_PROXY` names it.
struct Destination {
    host: String,
    address: Option<IpAddr>,
    port: u16,
}

impl Destination {
    fn of_server(server: &Uri) -> Option<Self> {
        let host = server.host()?.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let default = if server.scheme_str() == Some("http") { 80 } else { 443 };
        let address = host.parse::<IpAddr>().ok().map(|address| address.to_canonical());
        Some(Self { host, address, port: server.port_u16().unwrap_or(default) })
    }

    fn is_this_machine(&self) -> bool {
        self.host == "localhost" || self.address.is_some_and(|address| address.is_loopback())
    }

    fn is_direct(&self, list: &str) -> bool {
        list.split(',').any(|entry| self.matches(&entry.trim().to_lowercase()))
    }

    /// Returns whether an entry of `NO_PROXY` names this server. One that says nothing counts as not given.
    fn matches(&self, entry: &str) -> bool {
        if entry == "*" {
            return true;
        }
        if let Some((network, bits)) = parse_network(entry) {
            return self.address.is_some_and(|address| is_in_network(address, network, bits));
        }
        let (host, port) = split_port(entry);
        if port.is_some_and(|port| port != self.port.to_string()) {
            return false;
        }
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.address == Some(address.to_canonical());
        }
        let domain = host.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(host);
        match domain.strip_prefix('.') {
            // A domain without its own name.
            Some(parent) => !parent.is_empty() && self.host.ends_with(domain),
            None => {
                let below = self.host.strip_suffix(domain);
                !domain.is_empty() && below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
            }
        }
    }
}

/// Host and port of an entry; an address of IPv6 without brackets has no port.
fn split_port(entry: &str) -> (&str, Option<&str>) {
    let (host, port) = match entry.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match entry.rsplit_once(':') {
            Some((host, port)) if !host.contains(':') => (host, Some(port)),
            _ => (entry, None),
        },
    };
    (host, port.filter(|port| !port.is_empty()))
}

/// The address and the length of a range in CIDR form.
fn parse_network(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = entry.split_once('/')?;
    let (address, bits) = (address.parse::<IpAddr>().ok()?, bits.parse().ok()?);
    let longest = if address.is_ipv4() { 32 } else { 128 };
    (bits <= longest).then_some((address, bits))
}

fn is_in_network(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differing = u32::from(address) ^ u32::from(network);
            differing.checked_shr(32 - bits).is_none_or(|rest| rest == 0)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differing = u128::from(address) ^ u128::from(network);
            differing.checked_shr(128 - bits).is_none_or(|rest| rest == 0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: &str = "localhost,127.0.0.1,::1,.svc,.cluster.local,10.96.0.1,10.0.0.0/8,fd00::/8,.example.com";

    fn proxy_with(server: &str, variables: &[(&str, &str)]) -> Result<Option<String>, ProxyError> {
        let read =
            |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, text)| (*text).to_owned());
        let proxy = proxy_from_variables(&server.parse().unwrap(), read)?;
        Ok(proxy.map(|proxy| proxy.to_string()))
    }

    /// The proxy of a server where `NO_PROXY` is `direct`.
    fn proxy_of_server(server: &str, direct: &str) -> Option<String> {
        proxy_with(server, &[("https_proxy", "proxy.example.org:3128"), ("NO_PROXY", direct)]).unwrap()
    }

    #[test]
    fn in_cluster_names_and_ranges_are_reached_without_the_proxy_and_everything_else_by_it() {
        for server in [
            "https://apiserver.fleet.svc",
            "https://apiserver.fleet.svc:443",
            "https://kubernetes.default.svc.cluster.local",
            "https://10.96.0.1:443",
            "https://10.20.30.40:6443",
            "https://[fd00::1]:6443",
            "https://fleet.example.com:6443",
            "https://localhost:6443",
            "https://[::1]:6443",
        ] {
            assert_eq!(proxy_of_server(server, CHART), None, "{server}");
        }
        for server in ["https://fleet.example.org:6443", "https://192.0.2.1:6443", "https://[2001:db8::1]"] {
            assert_eq!(proxy_of_server(server, CHART).as_deref(), Some("http://proxy.example.org:3128/"), "{server}");
            assert_eq!(proxy_of_server(server, "*"), None, "{server}");
            assert!(proxy_of_server(server, "").is_some(), "{server}");
        }
    }

    #[test]
    fn an_entry_of_no_proxy_counts_as_for_kubectl() {
        let server = "https://api.example.com:6443";
        for direct in [
            "example.com",
            ".example.com",
            "*.example.com",
            "com",
            "API.Example.COM",
            " other , api.example.com ",
            "api.example.com:6443",
            "example.com:6443",
            "*.example.com:6443",
            "other,*",
            "10.0.0.0/33,api.example.com",
            "two words,api.example.com",
            "%%,,:,[,.,*.,api.example.com",
        ] {
            assert_eq!(proxy_of_server(server, direct), None, "{direct}");
        }
        for direct in [
            "ample.com",
            "api.example.com:443",
            "api.example.com.",
            "two words api.example.com",
            "10.0.0.0/33",
            "*api.example.com",
            "api.*",
            ".",
            "*.",
            ":6443",
            "/",
        ] {
            assert!(proxy_of_server(server, direct).is_some(), "{direct}");
        }
        // A domain with a dot before it does not name itself.
        assert!(proxy_of_server("https://example.com", ".example.com").is_some());
        assert!(proxy_of_server("https://example.com", "*.example.com").is_some());
        assert_eq!(proxy_of_server("https://example.com", "example.com:443"), None, "the default port");
        let server = "https://10.20.30.40:6443";
        for direct in ["10.20.30.40", "10.20.30.40:6443", "10.20.30.41/31", "0.0.0.0/0", "::ffff:10.20.30.40"] {
            assert_eq!(proxy_of_server(server, direct), None, "{direct}");
        }
        for direct in ["10.20.30.40:443", "10.20.*", "10.20.30.42/31", "10.20", "::/0"] {
            assert!(proxy_of_server(server, direct).is_some(), "{direct}");
        }
        let server = "https://[2001:db8::1]:6443";
        for direct in ["2001:db8::1", "[2001:db8::1]", "[2001:DB8:0::1]:6443", "2001:db8::/32", "::/0"] {
            assert_eq!(proxy_of_server(server, direct), None, "{direct}");
        }
        for direct in ["[2001:db8::1]:443", "2001:db9::/32", "0.0.0.0/0"] {
            assert!(proxy_of_server(server, direct).is_some(), "{direct}");
        }
    }

    #[test]
    fn the_variable_of_the_servers_scheme_counts_and_one_that_is_not_a_url_is_an_error() {
        let [http, https] = ["http://api.example.com", "https://api.example.com"];
        let both = [("HTTP_PROXY", "http://plain:3128"), ("HTTPS_PROXY", "http://encrypted:3128")];
        assert_eq!(proxy_with(http, &both), Ok(Some("http://plain:3128/".to_owned())));
        assert_eq!(proxy_with(https, &both), Ok(Some("http://encrypted:3128/".to_owned())));
        assert_eq!(proxy_with(https, &both[..1]), Ok(None));
        assert_eq!(proxy_with(http, &both[1..]), Ok(None));
        for (given, url) in [
            ("socks5h://p", "socks5://p:1080/"),
            ("SOCKS5://p:1", "socks5://p:1/"),
            ("HTTP://u:p@p", "http://u:p@p/"),
            ("p:3128", "http://p:3128/"),
        ] {
            assert_eq!(proxy_with(https, &[("HTTPS_PROXY", given)]), Ok(Some(url.to_owned())));
        }
        assert_eq!(proxy_with(https, &[("HTTPS_PROXY", " http://p")]), Ok(None));
        assert_eq!(proxy_with(https, &[("HTTPS_PROXY", "http://p\n")]), Ok(None));
        for given in
            ["http://p:abc", "http://u:hunter2#@p:1", "http://u:h\u{fc}nter2@p", "http://", "//p:3128", "ftp://p"]
        {
            let error = proxy_with(https, &[("HTTPS_PROXY", given)]).unwrap_err().to_string();
            assert!(error.starts_with("the environment variable HTTPS_PROXY "), "{error}");
            assert!(!error.contains("nter2"), "{error}");
            let direct = [("HTTPS_PROXY", given), ("NO_PROXY", ".example.com")];
            assert_eq!(proxy_with(https, &direct), Ok(None), "{given} is not needed");
        }
    }
}
