//! The proxy of the environment, as kubectl takes it.

use hyper_util::client::proxy::matcher::Matcher;

/// Returns the environment's proxy to a server; `None` where there is none, for what is on this machine, and for what
/// `NO_PROXY` names.
pub fn of_environment(server: &http::Uri) -> Option<http::Uri> {
    proxy_from_variables(server, |name| std::env::var(name).ok())
}

/// Returns the same as [`of_environment`] with another way to read variables.
fn proxy_from_variables(server: &http::Uri, read: impl Fn(&str) -> Option<String>) -> Option<http::Uri> {
    let [proxy, direct] = [["HTTPS_PROXY", "https_proxy"], ["NO_PROXY", "no_proxy"]]
        .map(|names| names.into_iter().find_map(|name| read(name).filter(|text| !text.is_empty())));
    let proxy = proxy?;
    let proxy = if proxy.contains("://") { proxy } else { format!("http://{proxy}") };
    let direct = direct.unwrap_or_default();
    // The matcher takes `*` for a name, not for an address.
    if direct.split(',').any(|entry| entry.trim() == "*") || is_this_machine(server.host()?) {
        return None;
    }
    let asked =
        http::Uri::builder().scheme("https").authority(server.authority()?.as_str()).path_and_query("/").build();
    let matcher = Matcher::builder().https(proxy.clone()).no(direct).build();
    proxy.parse().ok().filter(|_| asked.is_ok_and(|asked| matcher.intercept(&asked).is_some()))
}

fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: &str = "localhost,127.0.0.1,::1,.svc,.cluster.local,10.96.0.1,10.0.0.0/8,fd00::/8,.example.com";

    /// The proxy of a server where `NO_PROXY` is `direct`.
    fn proxy_of_server(server: &str, direct: &str) -> Option<String> {
        let proxy = proxy_from_variables(&server.parse().unwrap(), |name| match name {
            "https_proxy" => Some("proxy.example.org:3128".to_owned()),
            "NO_PROXY" => Some(direct.to_owned()),
            _ => None,
        });
        proxy.map(|proxy| proxy.to_string())
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
}
