//! Log-in plugins (`client.authentication.k8s.io`), run as kubectl runs them.
//!
//! No error holds an argument, the environment or the output of a plugin: any of them can be a credential.

use std::io::IsTerminal as _;
use std::process::{Command, Stdio};

use jiff::Timestamp;
use kube::config::{ExecConfig, ExecInteractiveMode};
use serde::Deserialize;
use serde_json::json;

use super::credential::Identity;
use crate::api::util::text::visible_line;

/// Reason that a log-in failed. No variant holds an argument, the environment or the output of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogInError {
    /// A plugin cannot be started; with what its kubeconfig says to that.
    #[error("cannot start the log-in plugin `{command}`: {why}{}", format_install_hint(hint))]
    NotStarted { command: String, why: String, hint: String },
    /// A plugin that must ask somebody, where nobody can be asked.
    #[error(
        "the log-in plugin `{command}` needs a terminal (`exec.interactiveMode` of its user), but standard input is \
         not a terminal"
    )]
    NotInteractive { command: String },
    /// A plugin ended with a failure; what it wrote to stderr, escaped and cut, where it did not write to the terminal.
    #[error("the log-in plugin `{command}` failed with {status}{}", format_plugin_output(stderr))]
    Failed { command: String, status: String, stderr: String },
    /// A plugin ended well and gave no credential.
    #[error("the log-in plugin `{command}` did not print an ExecCredential with a token or a certificate")]
    NoCredential { command: String },
    /// A plugin answered in another version than it was asked in.
    #[error(
        "the log-in plugin `{command}` returned an object of {found}, but `exec.apiVersion` of its user is {wanted}"
    )]
    OtherVersion { command: String, found: String, wanted: String },
    /// The credential that the kubeconfig asks for cannot be had.
    #[error("{0}")]
    Unusable(String),
}

fn format_plugin_output(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; stderr: {stderr}") }
}

fn format_install_hint(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!("; the kubeconfig says: {hint}") }
}

/// Credential that a plugin gave.
#[derive(Clone)]
pub(crate) struct Given {
    pub(in crate::k8s) token: Option<String>,
    pub(in crate::k8s) identity: Option<Identity>,
    /// Time at which the plugin must be asked again (its `expirationTimestamp`); `None` where it named none.
    pub(in crate::k8s) until: Option<Timestamp>,
}

impl Given {
    /// The credential of a plugin's status; none where it is incomplete.
    fn from_plugin_status(status: Status) -> Option<Self> {
        let Status { token, client_certificate_data, client_key_data, expiration_timestamp } = status;
        let [token, certificate, key, until] = [token, client_certificate_data, client_key_data, expiration_timestamp]
            .map(|text| text.filter(|text| !text.is_empty()));
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
            (None, None) => None,
            _ => return None,
        };
        if token.is_none() && identity.is_none() {
            return None;
        }
        let until = until.map(|text| text.parse::<Timestamp>()).transpose().ok()?;
        Some(Self { token, identity, until })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    api_version: Option<String>,
    kind: Option<String>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

/// Runs a plugin and waits for it. It may use the terminal, unless its kubeconfig says otherwise.
///
/// # Errors
/// [`LogInError`].
pub(crate) fn run_plugin(exec: &ExecConfig) -> Result<Given, LogInError> {
    let path = exec.command.clone().unwrap_or_default();
    let command = visible_line(&path).into_owned();
    let is_interactive = match exec.interactive_mode {
        Some(ExecInteractiveMode::Never) => false,
        Some(ExecInteractiveMode::Always) if !std::io::stdin().is_terminal() => {
            return Err(LogInError::NotInteractive { command });
        }
        _ => std::io::stdin().is_terminal(),
    };
    let wanted = exec.api_version.clone().unwrap_or_default();
    let mut spec = json!({"interactive": is_interactive});
    if let Some(cluster) = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info) {
        spec["cluster"] = serde_json::to_value(cluster).unwrap_or_default();
    }
    let info = json!({"kind": "ExecCredential", "apiVersion": wanted, "spec": spec});
    let mut plugin = Command::new(&path);
    plugin.args(exec.args.iter().flatten());
    for variable in exec.env.iter().flatten() {
        plugin.env(variable.get("name").map_or("", String::as_str), variable.get("value").map_or("", String::as_str));
    }
    plugin.env("KUBERNETES_EXEC_INFO", info.to_string());
    plugin.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
    if exec.interactive_mode != Some(ExecInteractiveMode::Never) {
        plugin.stderr(Stdio::inherit());
    }
    let output = plugin.output().map_err(|error| LogInError::NotStarted {
        command: command.clone(),
        why: error.kind().to_string(),
        hint: exec.install_hint.as_deref().map(|hint| visible_line(hint.trim()).into_owned()).unwrap_or_default(),
    })?;
    if !output.status.success() {
        return Err(LogInError::Failed {
            command,
            status: output.status.to_string(),
            stderr: visible_line(String::from_utf8_lossy(&output.stderr).trim()).into_owned(),
        });
    }
    parse_plugin_output(&output.stdout, &wanted, &command)
}

/// Reads what a plugin printed: JSON, or YAML as kubectl takes it, too.
fn parse_plugin_output(stdout: &[u8], wanted: &str, command: &str) -> Result<Given, LogInError> {
    let none = LogInError::NoCredential { command: command.to_owned() };
    let Ok(printed) = serde_saphyr::from_slice::<Printed>(stdout) else { return Err(none) };
    let is_credential = printed.kind.as_deref() == Some("ExecCredential");
    let Some(status) = printed.status.filter(|_| is_credential) else { return Err(none) };
    let found = printed.api_version.unwrap_or_default();
    if found != wanted {
        let found = if found.starts_with("client.authentication.k8s.io/") { found } else { "another API".to_owned() };
        return Err(LogInError::OtherVersion {
            command: command.to_owned(),
            found: visible_line(&found).into_owned(),
            wanted: wanted.to_owned(),
        });
    }
    Given::from_plugin_status(status).ok_or(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(status: &str) -> Result<Given, LogInError> {
        let version = "client.authentication.k8s.io/v1";
        let text = format!("{{\"apiVersion\": \"{version}\", \"kind\": \"ExecCredential\", \"status\": {status}}}");
        parse_plugin_output(text.as_bytes(), version, "aws")
    }

    #[test]
    fn what_a_plugin_prints_is_a_token_or_a_whole_identity_in_the_version_that_was_asked_for() {
        let given = printed("{\"token\": \"t\", \"expirationTimestamp\": \"2030-01-01T00:00:00Z\"}").ok().unwrap();
        assert!(given.token.as_deref() == Some("t") && given.identity.is_none() && given.until.is_some());
        let given = printed("{\"clientCertificateData\": \"c\", \"clientKeyData\": \"k\"}").ok().unwrap();
        assert!(given.token.is_none() && given.identity.is_some() && given.until.is_none());
        for status in [
            "{}",
            "null",
            "{\"token\": \"\"}",
            "{\"clientKeyData\": \"SECRET\"}",
            "{\"token\": \"SECRET\", \"expirationTimestamp\": \"SECRET\"}",
            "{\"token\": [\"SECRET\"]}",
        ] {
            let error = printed(status).err().unwrap();
            assert_eq!(error, LogInError::NoCredential { command: "aws".to_owned() }, "{status}");
        }
        for text in ["", "SECRET", "{\"kind\": \"SECRET\", \"apiVersion\": \"v\", \"status\": {\"token\": \"SECRET\"}}"]
        {
            assert_eq!(
                parse_plugin_output(text.as_bytes(), "v", "aws").err().unwrap(),
                LogInError::NoCredential { command: "aws".to_owned() }
            );
        }
        let text = "{\"kind\": \"ExecCredential\", \"apiVersion\": \"SECRET\", \"status\": {\"token\": \"SECRET\"}}";
        let error = parse_plugin_output(text.as_bytes(), "v", "aws").err().unwrap();
        assert!(matches!(&error, LogInError::OtherVersion { found, .. } if found == "another API"), "{error}");
    }

    #[test]
    fn a_plugin_that_is_not_there_is_told_with_what_the_kubeconfig_says_to_that() {
        let exec = ExecConfig {
            command: Some("/nonexistent/plugin".to_owned()),
            install_hint: Some("get it\u{1b}[2J\n".to_owned()),
            args: Some(vec!["SECRET".to_owned()]),
            ..ExecConfig::default()
        };
        let error = run_plugin(&exec).err().unwrap().to_string();
        let wanted = r"cannot start the log-in plugin `/nonexistent/plugin`: entity not found; the kubeconfig says: get it\u{1b}[2J";
        assert_eq!(error, wanted);
    }
}
