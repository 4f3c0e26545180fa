//! Settings of `fleet-scheduler`: flags, environment and the mounted configuration file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Deserializer};

use crate::api::extra_kind::{self, ExtraKind};
use crate::api::protocol;
use crate::api::values::agent_certificate_lifetime::{CERTIFICATE_AT_LEAST, default_certificate_lifetime};
use crate::api::values::lifetime;
use crate::api::values::token_lifetime::{TOKEN_AT_LEAST, default_init_token_lifetime};
use crate::daemon::log::LogFormat;

/// Runs the control loops of a control plane: CustomResourceDefinitions, registration, cluster health and placement.
// A flag may be given again: further arguments of the values win over the chart's.
#[derive(Debug, Clone, Parser)]
#[command(name = "fleet-scheduler", version, args_override_self = true)]
pub struct Args {
    /// Kubeconfig of the control plane's own API
    #[arg(long, env = "FLEET_KUBECONFIG", default_value = "/etc/fleet/kubeconfig/kubeconfig", value_name = "FILE")]
    pub kubeconfig: PathBuf,

    /// Folder of objects to apply to the control plane's API
    #[arg(long, env = "FLEET_BOOTSTRAP_DIR", default_value = "/etc/fleet/bootstrap", value_name = "DIR")]
    pub bootstrap_dir: PathBuf,

    /// Configuration file
    #[arg(long, env = "FLEET_CONFIG", default_value = "/etc/fleet/config/config.yaml", value_name = "FILE")]
    pub config: PathBuf,

    /// File with the list of certificates, from the last renewal
    #[arg(
        long,
        env = "FLEET_CERTIFICATES",
        default_value = "/etc/fleet/certificates/certificates.json",
        value_name = "FILE"
    )]
    pub certificates: PathBuf,

    /// Address of /healthz, /readyz and /metrics
    #[arg(long, env = "FLEET_ADMIN_ADDRESS", default_value = "0.0.0.0:8080", value_name = "ADDRESS")]
    pub admin_address: SocketAddr,

    /// Format of log lines
    #[arg(long, env = "FLEET_LOG_FORMAT", value_enum, default_value = "json")]
    pub log_format: LogFormat,

    /// Whether the annotations `cluster` and `spread-onto` of an object place it, bypassing all policies
    #[arg(long, value_enum, default_value = "Allow", value_name = "ALLOW|DENY", ignore_case = true)]
    pub direct_placement: DirectPlacement,

    /// Kinds to place in addition to the built-in ones
    #[arg(long, value_delimiter = ',', value_name = "GROUP/VERSION/KIND")]
    pub extra_kinds: Vec<ExtraKind>,

    /// Whether roles and their bindings are placed
    #[arg(long)]
    pub allow_rbac_kinds: bool,

    /// Holder identity of this process in the leader Lease; unique among the replicas
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
}

impl Args {
    /// The kinds that are placed beside the built-in ones.
    pub fn added_kinds(&self) -> Vec<ExtraKind> {
        extra_kind::collect_extra_kinds(&self.extra_kinds, self.allow_rbac_kinds)
    }
}

/// Whether annotations of objects place them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub enum DirectPlacement {
    /// Annotations place objects
    Allow,
    /// Annotations are ignored, except that an empty `cluster` keeps an object in the control plane
    Deny,
}

impl DirectPlacement {
    /// Returns the value as the status of the control plane holds it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => protocol::ALLOW,
            Self::Deny => protocol::DENY,
        }
    }
}

/// The configuration file. It is read again when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// The namespace of the service, in the hosting cluster and in the control plane's API alike.
    #[serde(default = "fleet")]
    pub namespace: String,
    /// Name of the control plane.
    #[serde(default)]
    pub name: Option<String>,
    /// Service version of the control plane.
    #[serde(default)]
    pub version: Option<String>,
    /// URL at which agents reach the control plane's API; by default the one in the file `server` beside the kubeconfig.
    /// Without either no init Secret is made.
    #[serde(default)]
    pub agent_endpoint: Option<String>,
    /// The CA that agents trust; by default the one in the scheduler's kubeconfig.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// Validity of an init token; it is replaced at half of that.
    #[serde(rename = "initTokenTTL", default = "default_init_token_lifetime", deserialize_with = "token_ttl")]
    pub init_token_ttl: Duration,
    /// Mode of registration.
    #[serde(default)]
    pub registration: Registration,
    /// Maximum validity of an agent's certificate.
    #[serde(
        rename = "agentCertificateTTL",
        default = "default_certificate_lifetime",
        deserialize_with = "certificate_ttl"
    )]
    pub agent_certificate_ttl: Duration,
    /// Rate limit of new workload clusters per minute; more have to wait.
    #[serde(default = "sixty")]
    pub new_clusters_per_minute: usize,
}

/// Mode of registration of a new workload cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registration {
    /// The holder of an init token is accepted.
    #[default]
    Auto,
    /// An operator has to set `spec.accepted` of the Cluster.
    Manual,
}

fn fleet() -> String {
    "fleet".to_owned()
}

const fn sixty() -> usize {
    60
}

fn token_ttl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserialize_ttl(deserializer, TOKEN_AT_LEAST)
}

fn certificate_ttl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserialize_ttl(deserializer, CERTIFICATE_AT_LEAST)
}

fn deserialize_ttl<'de, D: Deserializer<'de>>(deserializer: D, at_least: Duration) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    lifetime::parse_lifetime(&text, at_least).map_err(|wrong| serde::de::Error::custom(format!("`{text}`: {wrong}")))
}

/// Reason why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("{0}")]
    Read(std::io::Error),
    /// The text is invalid.
    #[error("{path}: {message}")]
    Parse {
        /// The file.
        path: String,
        /// The error, with its location.
        message: String,
    },
}

impl Settings {
    /// Reads the configuration file.
    pub fn read_settings_file(path: &Path) -> Result<Self, SettingsError> {
        let text = fs_err::read_to_string(path).map_err(SettingsError::Read)?;
        Self::parse(&text).map_err(|message| SettingsError::Parse { path: path.display().to_string(), message })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        if let Some(url) = &settings.agent_endpoint {
            check_url(url).map_err(|wrong| format!("agentEndpoint: {wrong}"))?;
        }
        Ok(settings)
    }

    /// The same with the URL for agents out of `file`, where the configuration has none and the file is there.
    ///
    /// # Errors
    /// The file cannot be read, or does not hold a URL of the form `https://HOST[:PORT]`.
    pub fn with_endpoint_file(mut self, file: &Path) -> Result<Self, SettingsError> {
        if self.agent_endpoint.is_none() {
            let text = match fs_err::read_to_string(file) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(self),
                read => read.map_err(SettingsError::Read)?,
            };
            let url = text.trim().to_owned();
            check_url(&url).map_err(|message| SettingsError::Parse { path: file.display().to_string(), message })?;
            self.agent_endpoint = Some(url);
        }
        Ok(self)
    }
}

/// Checks a URL for agents; the error says what is wrong with it.
fn check_url(url: &str) -> Result<(), String> {
    let uri: http::Uri = url.parse().map_err(|_| format!("`{url}` is not a URL"))?;
    if uri.scheme_str() != Some("https") || uri.host().is_none_or(str::is_empty) {
        return Err(format!("`{url}` is not of the form https://HOST[:PORT]"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_repeated_flags_counts() {
        let given = ["fleet-scheduler", "--admin-address=0.0.0.0:8080", "--config=a", "--admin-address=127.0.0.1:9090"];
        let args = Args::try_parse_from(given).unwrap();
        assert_eq!(args.admin_address, "127.0.0.1:9090".parse().unwrap());
        assert_eq!(args.config, Path::new("a"));
        assert_eq!(args.direct_placement, DirectPlacement::Allow);
        let kinds =
            ["fleet-scheduler", "--extra-kinds=example.com/v1/A", "--extra-kinds=/v1/LimitRange", "--allow-rbac-kinds"];
        let kinds = Args::try_parse_from(kinds).unwrap().added_kinds();
        let kinds: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        assert!(kinds.len() == 6 && kinds.contains(&"example.com/v1/A".to_owned()), "each is one more: {kinds:?}");
        let denied = Args::try_parse_from(["fleet-scheduler", "--direct-placement=Deny"]).unwrap();
        assert_eq!(denied.direct_placement, DirectPlacement::Deny);
    }

    #[test]
    fn defaults_are_as_documented() {
        let settings = Settings::parse("{}").unwrap();
        assert_eq!(settings.namespace, "fleet");
        assert_eq!(settings.init_token_ttl, Duration::from_secs(2_592_000));
        assert_eq!(settings.registration, Registration::Auto);
        assert_eq!(settings.agent_endpoint, None);
    }

    #[test]
    fn the_url_for_agents_is_that_of_the_configuration_else_that_beside_the_kubeconfig() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("server");
        let unset = Settings::parse("{}").unwrap();
        assert_eq!(unset.clone().with_endpoint_file(&file).unwrap().agent_endpoint, None);
        std::fs::write(&file, "https://192.0.2.7:443\n").unwrap();
        let completed = unset.clone().with_endpoint_file(&file).unwrap();
        assert_eq!(completed.agent_endpoint.as_deref(), Some("https://192.0.2.7:443"));
        let own = Settings::parse("agentEndpoint: https://fleet.example.com").unwrap();
        let own = own.with_endpoint_file(&file).unwrap().agent_endpoint;
        assert_eq!(own.as_deref(), Some("https://fleet.example.com"));
        std::fs::write(&file, "http://192.0.2.7").unwrap();
        assert!(unset.with_endpoint_file(&file).unwrap_err().to_string().contains("server: `http://192.0.2.7`"));
    }

    #[test]
    fn invalid_settings_are_named() {
        for (text, named) in [
            ("agentEndpiont: https://x", "agentEndpiont"),
            ("initTokenTTL: 30", "30"),
            ("initTokenTTL: 0d", "0d"),
            ("agentCertificateTTL: 599s", "599s"),
            ("agentEndpoint: http://1.2.3.4", "agentEndpoint"),
            ("agentEndpoint: 1.2.3.4:443", "agentEndpoint"),
            ("registration: maybe", "maybe"),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
