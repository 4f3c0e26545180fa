//! Errors of logging in, in words that show no credential.
//!
//! The library's messages hold a plugin's whole command line with its environment, and what it printed: the token. They
//! are replaced where they arise, in the connection itself, so that no command, log or document can show them.

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use kube::client::AuthError;
use kube::config::AuthInfo;
use tower::{BoxError, Layer, Service};

use crate::api::text::visible;

/// Why a log-in failed. No variant holds an argument, the environment or the output of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LogInError {
    /// A plugin cannot be started.
    #[error("cannot start the log-in plugin `{command}`: {why}")]
    NotStarted { command: String, why: String },
    /// A plugin ended with a failure; what it wrote to stderr, escaped and cut, where it did not write to the terminal.
    #[error("the log-in plugin `{command}` failed with {status}{}", said(stderr))]
    Failed { command: String, status: String, stderr: String },
    /// A plugin ended well and gave no credential.
    #[error("what the log-in plugin `{command}` printed is no ExecCredential with a token or a certificate")]
    NoCredential { command: String },
    /// What the kubeconfig asks for is not to be had.
    #[error("{0}")]
    Unusable(String),
}

fn said(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!("; it said: {stderr}") }
}

/// The programs that a user of a kubeconfig runs to log in, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct LogIn {
    command: String,
}

impl LogIn {
    /// Those of a user.
    pub(crate) fn of(user: &AuthInfo) -> Self {
        let plugin = user.exec.as_ref().and_then(|exec| exec.command.as_deref());
        let helper = || user.auth_provider.as_ref().and_then(|provider| provider.config.get("cmd-path"));
        let command = plugin.or_else(|| helper().map(String::as_str)).unwrap_or_default();
        Self { command: visible(command).into_owned() }
    }

    /// The error without credentials; one that is about something else as it is.
    pub(crate) fn without_credentials(&self, error: BoxError) -> BoxError {
        let mut link: Option<&(dyn StdError + 'static)> = Some(&*error);
        while let Some(cause) = link {
            if let Some(found) = auth_error(cause) {
                return self.told(found).into();
            }
            link = cause.source();
        }
        error
    }

    fn told(&self, error: &AuthError) -> LogInError {
        let command = || self.command.clone();
        match error {
            AuthError::AuthExecStart(source) => {
                LogInError::NotStarted { command: command(), why: source.kind().to_string() }
            }
            AuthError::AuthExecRun { out, .. } => LogInError::Failed {
                command: command(),
                status: out.status.to_string(),
                stderr: visible(String::from_utf8_lossy(&out.stderr).trim()).into_owned(),
            },
            AuthError::AuthExecParse(_)
            | AuthError::ExecPluginFailed
            | AuthError::UnrefreshableTokenResponse
            | AuthError::MalformedTokenExpirationDate(_)
            | AuthError::ParseTokenKey(_) => LogInError::NoCredential { command: command() },
            AuthError::InvalidBasicAuth(_) => unusable("the user name or the password cannot be sent in a header"),
            AuthError::InvalidBearerToken(_) => {
                unusable("the token cannot be sent in a header: it has a line break or a control character in it")
            }
            AuthError::ReadTokenFile(source, path) => {
                LogInError::Unusable(format!("cannot read the token file {}: {source}", path.display()))
            }
            AuthError::MissingCommand => unusable("the `exec` of the user names no `command`"),
            AuthError::ExecMissingClusterInfo => {
                unusable("the `exec` of the user wants to know the cluster, and the kubeconfig has none")
            }
            AuthError::NoValidNativeRootCA(source) => {
                LogInError::Unusable(format!("the system has no certificates of authorities: {source}"))
            }
            // Its text can be a command line.
            AuthError::AuthExec(_) => unusable(
                "the `auth-provider` of the user cannot be used; Kubernetes has removed these in favour of `exec` plugins",
            ),
            AuthError::AuthExecSerialize(_) => unusable("the user cannot log in"),
        }
    }
}

fn unusable(why: &str) -> LogInError {
    LogInError::Unusable(why.to_owned())
}

/// The log-in error that an error is, or is about.
fn auth_error<'e>(error: &'e (dyn StdError + 'static)) -> Option<&'e AuthError> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Auth(error)) => Some(error),
        _ => error.downcast_ref::<AuthError>(),
    }
}

impl<S> Layer<S> for LogIn {
    type Service = LoggingIn<S>;

    fn layer(&self, inner: S) -> LoggingIn<S> {
        LoggingIn { inner, log_in: self.clone() }
    }
}

/// A service whose errors show no credential, also where a token is fetched anew between two requests.
#[derive(Debug, Clone)]
pub(crate) struct LoggingIn<S> {
    inner: S,
    log_in: LogIn,
}

impl<S, R> Service<R> for LoggingIn<S>
where
    S: Service<R, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let (answer, log_in) = (self.inner.call(request), self.log_in.clone());
        Box::pin(async move { answer.await.map_err(|error| log_in.without_credentials(error)) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{ExitStatus, Output};

    use super::*;

    fn log_in() -> LogIn {
        LogIn { command: "aws".to_owned() }
    }

    fn shown(error: AuthError) -> String {
        let error = log_in().without_credentials(Box::new(kube::Error::Auth(error)));
        assert!(error.source().is_none(), "what stands behind it would be shown, too");
        format!("{error} {error:?}")
    }

    #[test]
    fn no_credential_of_a_plugin_is_in_its_error() {
        let out = Output {
            status: ExitStatus::from_raw(255 << 8),
            stdout: b"{\"token\": \"SECRET\"}".to_vec(),
            stderr: b"no session\x1b[2J".to_vec(),
        };
        let failed =
            shown(AuthError::AuthExecRun { cmd: "KEY=SECRET aws --token SECRET".to_owned(), out: Box::new(out) });
        assert!(!failed.contains("SECRET") && !failed.contains('\u{1b}'), "{failed}");
        assert!(
            failed.starts_with("the log-in plugin `aws` failed with exit status: 255; it said: no session"),
            "{failed}"
        );
        for error in [
            AuthError::ParseTokenKey(serde_json::from_str::<u8>("\"SECRET\"").unwrap_err()),
            AuthError::AuthExec("Executing aws SECRET failed".to_owned()),
        ] {
            assert!(error.to_string().contains("SECRET"), "it is not tested by {error}");
            assert!(!shown(error).contains("SECRET"));
        }
    }

    #[test]
    fn a_log_in_error_is_found_behind_others_and_other_errors_stay() {
        let inner = kube::Error::Auth(AuthError::AuthExec("SECRET".to_owned()));
        let behind = kube::Error::Service(Box::new(std::io::Error::other(inner)));
        let error = log_in().without_credentials(Box::new(behind));
        assert!(!error.to_string().contains("SECRET"), "{error}");
        let other = log_in().without_credentials("connection refused".into());
        assert_eq!(other.to_string(), "connection refused");
    }
}
