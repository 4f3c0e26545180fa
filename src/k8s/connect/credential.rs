//! Credentials of requests: the authorization header of each request, renewed when a token expires.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http::header::{AUTHORIZATION, HeaderValue};
use jiff::{SignedDuration, Timestamp};
use kube::config::{AuthInfo, ExecConfig};
use tokio::sync::Mutex;
use tower::{BoxError, Layer, Service};
use zeroize::Zeroizing;

use super::exec_plugin::{self, Given, LogInError};
use super::kubeconfig_check::read_token;

/// Time after which a file of a token is read again.
const FILE_AGE: Duration = Duration::from_secs(60);
/// Time before its end in which a token is no longer used.
const MARGIN: SignedDuration = SignedDuration::from_secs(10);

/// A client's certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    pub(in crate::k8s) certificate: String,
    pub(in crate::k8s) key: String,
}

/// Source of the credential that requests are sent with.
#[derive(Clone)]
enum Source {
    /// No credential.
    Nobody,
    /// The same header for ever.
    Fixed(HeaderValue),
    /// A token of a file that others may rewrite.
    File(Arc<Mutex<(PathBuf, HeaderValue, Instant)>>),
    /// A token of a plugin.
    Plugin(Arc<Mutex<(ExecConfig, HeaderValue, Timestamp)>>),
}

/// The credential of a user.
#[derive(Clone)]
pub(crate) struct Credential(Source);

impl Credential {
    /// Reads the credential of a user, for which a plugin may run; and the certificate that a plugin gave.
    ///
    /// A token counts before a plugin, and so does a certificate of the kubeconfig. Blocks while a plugin runs.
    ///
    /// # Errors
    /// [`LogInError`].
    pub(crate) fn from_user(user: &AuthInfo) -> Result<(Self, Option<Identity>), LogInError> {
        // The type that holds secrets can only be read by writing it out.
        let written = serde_json::to_value(user).unwrap_or_default();
        if let Some(file) = &user.token_file {
            let header = of_file(Path::new(file))?;
            return Ok((Self(Source::File(Arc::new(Mutex::new((file.into(), header, Instant::now()))))), None));
        }
        if let Some(token) = written["token"].as_str().filter(|token| !token.is_empty()) {
            return bearer_header(token).map(Self::from_fixed_header);
        }
        if let (Some(name), Some(password)) = (&user.username, written["password"].as_str()) {
            let pair = Zeroizing::new(format!("{name}:{password}"));
            let header = sensitive_header(&format!("Basic {}", STANDARD.encode(pair.as_bytes())));
            return header.map(Self::from_fixed_header);
        }
        if let Some(provider) = &user.auth_provider {
            let token = provider.config.get("id-token").map(String::as_str);
            return bearer_header(token.unwrap_or_default()).map(Self::from_fixed_header);
        }
        if let Some(exec) = user.exec.as_ref().filter(|_| user.client_certificate_data.is_none()) {
            let Given { token, identity, until } = exec_plugin::run_plugin(exec)?;
            let source = match (token.map(|token| bearer_header(&token)).transpose()?, until) {
                (None, _) => Source::Nobody,
                (Some(header), None) => Source::Fixed(header),
                (Some(header), Some(until)) => Source::Plugin(Arc::new(Mutex::new((exec.clone(), header, until)))),
            };
            return Ok((Self(source), identity));
        }
        Ok((Self(Source::Nobody), None))
    }

    fn from_fixed_header(header: HeaderValue) -> (Self, Option<Identity>) {
        (Self(Source::Fixed(header)), None)
    }

    /// The header of a request that is sent now.
    async fn current_header(&self) -> Result<Option<HeaderValue>, LogInError> {
        match &self.0 {
            Source::Nobody => Ok(None),
            Source::Fixed(header) => Ok(Some(header.clone())),
            Source::File(kept) => {
                let mut kept = kept.lock().await;
                if kept.2.elapsed() >= FILE_AGE {
                    // A file that is gone, or is being written, leaves the former token in use.
                    if let Ok(header) = of_file(&kept.0) {
                        kept.1 = header;
                    }
                    kept.2 = Instant::now();
                }
                Ok(Some(kept.1.clone()))
            }
            Source::Plugin(kept) => {
                let mut kept = kept.lock().await;
                if Timestamp::now() + MARGIN >= kept.2 {
                    let exec = kept.0.clone();
                    let given = tokio::task::spawn_blocking(move || exec_plugin::run_plugin(&exec)).await;
                    let given = given.map_err(|_| LogInError::Unusable("the log-in was cancelled".to_owned()))??;
                    let token =
                        given.token.ok_or_else(|| LogInError::Unusable("the plugin returned no token".to_owned()))?;
                    (kept.1, kept.2) = (bearer_header(&token)?, given.until.unwrap_or(Timestamp::MAX));
                }
                Ok(Some(kept.1.clone()))
            }
        }
    }
}

fn sensitive_header(text: &str) -> Result<HeaderValue, LogInError> {
    let mut header = HeaderValue::try_from(text).map_err(|_| {
        LogInError::Unusable("the credential contains a line break or another control character".to_owned())
    })?;
    header.set_sensitive(true);
    Ok(header)
}

fn bearer_header(token: &str) -> Result<HeaderValue, LogInError> {
    sensitive_header(&Zeroizing::new(format!("Bearer {token}")))
}

fn of_file(file: &Path) -> Result<HeaderValue, LogInError> {
    bearer_header(&read_token(file).map_err(|problem| LogInError::Unusable(format!("the token file {problem}")))?)
}

impl<S> Layer<S> for Credential {
    type Service = Presenting<S>;

    fn layer(&self, inner: S) -> Presenting<S> {
        Presenting { inner, credential: self.clone() }
    }
}

/// A service whose requests say who asks.
#[derive(Clone)]
pub(crate) struct Presenting<S> {
    inner: S,
    credential: Credential,
}

impl<S, B> Service<Request<B>> for Presenting<S>
where
    S: Service<Request<B>> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // The one that is ready is the one that is called.
        let next = self.inner.clone();
        let (mut inner, credential) = (std::mem::replace(&mut self.inner, next), self.credential.clone());
        Box::pin(async move {
            if let Some(header) = credential.current_header().await? {
                request.headers_mut().insert(AUTHORIZATION, header);
            }
            inner.call(request).await.map_err(Into::into)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(fields: &str) -> AuthInfo {
        serde_saphyr::from_str(&format!("{{{fields}}}")).unwrap()
    }

    async fn sent(fields: &str) -> Option<String> {
        let (credential, _) = Credential::from_user(&user(fields)).unwrap();
        current_text(&credential).await
    }

    async fn current_text(credential: &Credential) -> Option<String> {
        credential.current_header().await.unwrap().map(|header| header.to_str().unwrap().to_owned())
    }

    /// Makes the token of a file so old that the file is read again.
    async fn age_token_file(credential: &Credential) {
        let Source::File(kept) = &credential.0 else { panic!("it is a file") };
        let mut kept = kept.lock().await;
        kept.2 = kept.2.checked_sub(FILE_AGE).unwrap();
    }

    #[tokio::test]
    async fn each_way_to_log_in_becomes_a_header() {
        assert_eq!(sent("").await, None);
        assert_eq!(sent("token: a").await.as_deref(), Some("Bearer a"));
        assert_eq!(sent("username: u, password: 'p:q'").await.as_deref(), Some("Basic dTpwOnE="));
        let provider = "auth-provider: {name: oidc, config: {id-token: i}}";
        assert_eq!(sent(provider).await.as_deref(), Some("Bearer i"));
    }

    #[tokio::test]
    async fn a_token_file_is_read_again_and_its_last_token_stays_when_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs_err::write(&path, "first\n").unwrap();
        let (credential, _) = Credential::from_user(&user(&format!("tokenFile: '{}'", path.display()))).unwrap();
        fs_err::write(&path, "second\n").unwrap();
        assert_eq!(current_text(&credential).await.as_deref(), Some("Bearer first"));
        age_token_file(&credential).await;
        assert_eq!(current_text(&credential).await.as_deref(), Some("Bearer second"));
        fs_err::remove_file(&path).unwrap();
        age_token_file(&credential).await;
        assert_eq!(current_text(&credential).await.as_deref(), Some("Bearer second"));
    }
}
