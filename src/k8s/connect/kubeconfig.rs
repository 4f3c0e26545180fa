//! From kubeconfig files, a context and a namespace to a client, with errors that name the file and the contexts.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use super::connection;
use super::kubeconfig_check::ReadError;
use super::server_identity::Fields;
use super::{kubeconfig_check, proxy};
use crate::api::remedy::{Flag, Remedy};
use crate::api::shell::foreign_word;
use crate::api::util::file_fault::FileFault;
use crate::api::util::text::{visible_cell, visible_list};
use crate::k8s::request::log::Trace;
use crate::k8s::request::read_layer::Repeats;
use crate::k8s::request::response_limit::AnswerLimit;
use crate::k8s::request::retry::PATIENCE;

/// Time that a connection may take to come up.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that a connection may stay silent. Longer than a request of ours and than the life of a watch of ours.
const READ_TIMEOUT: Duration = Duration::from_secs(70);

/// Choice of the server to connect to and of the user to connect as.
#[derive(Debug, Clone, Default)]
pub struct Target {
    /// Kubeconfig files given by flag; instead of them `KUBECONFIG` (a list), then `~/.kube/config`, then the pod.
    pub kubeconfig: Vec<PathBuf>,
    /// The context, else the current one.
    pub context: Option<String>,
}

/// A client and what it was made from.
#[derive(Clone)]
pub struct Connected {
    /// The client; reads are sent again while that can heal.
    pub client: Client,
    /// The name of the context, none inside a pod.
    pub context: Option<String>,
    /// The API server's address.
    pub server: String,
    /// The namespace of the context, `default` if it names none.
    pub namespace: String,
    /// Reason that it is not known to be this server that answers; `None` where it is known.
    pub unverified: Option<&'static str>,
}

impl std::fmt::Debug for Connected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connected")
            .field("context", &self.context)
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

/// Reason that no client could be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No file, no pod.
    #[error("no kubeconfig was found: {looked}")]
    NoKubeconfig {
        /// Places that were looked at, as text.
        looked: String,
    },
    /// A file that cannot be read or is no kubeconfig.
    #[error("cannot use the kubeconfig {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The context that was asked for does not exist, or none is current.
    #[error("{} in {files}{}", describe_missing_context(context.as_deref()), format_known_contexts(contexts))]
    Context {
        /// The context that was asked for; none when no current context is set.
        context: Option<String>,
        /// The files that were read.
        files: String,
        /// The contexts that exist.
        contexts: Vec<String>,
    },
    /// The context exists, and what it points to cannot be used.
    #[error("the context `{}` of {files} cannot be used", visible_cell(context))]
    Unusable {
        /// The context.
        context: String,
        /// The files that were read.
        files: String,
        /// The problem.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl ClientError {
    /// A stable id for programs.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NoKubeconfig { .. } => "NoKubeconfig",
            Self::File { .. } => "BadKubeconfig",
            Self::Context { .. } => "NoSuchContext",
            Self::Unusable { .. } => "UnusableContext",
        }
    }

    /// The remedy.
    pub fn remedy(&self) -> Remedy {
        match self {
            Self::NoKubeconfig { .. } => "set KUBECONFIG to the file of your cluster".into(),
            Self::File { path, source } => {
                let read = source.downcast_ref().and_then(|source| match source {
                    ReadError::Read(error) => FileFault::in_error(error)?.remedy(),
                    _ => None,
                });
                read.map_or_else(|| format!("check the file {}", path.display()).into(), Remedy::new)
            }
            Self::Context { contexts, .. } if contexts.len() == 1 => {
                Remedy::new("use ").flag(Flag::Context(Some(contexts[0].clone())))
            }
            Self::Context { contexts, .. } if contexts.is_empty() => {
                "set KUBECONFIG to the file of your cluster".into()
            }
            Self::Context { .. } => Remedy::new("choose an existing context with ").flag(Flag::Context(None)),
            Self::Unusable { context, .. } => {
                format!("try `kubectl --context {} version` to see whether the context works", foreign_word(context))
                    .into()
            }
        }
    }
}

fn describe_missing_context(context: Option<&str>) -> String {
    context.map_or_else(
        || "no current context is set".to_owned(),
        |context| format!("there is no context `{}`", visible_cell(context)),
    )
}

fn format_known_contexts(contexts: &[String]) -> String {
    if contexts.is_empty() {
        String::new()
    } else {
        format!("; existing contexts: {}", visible_list(&contexts.join(", ")))
    }
}

impl Target {
    /// Makes a client. Nothing is sent yet, but an exec plugin of the kubeconfig may run.
    ///
    /// # Errors
    /// [`ClientError`], with the file or the context that does not work.
    pub async fn connect_client(&self) -> Result<Connected, ClientError> {
        let paths = self.kubeconfig_paths();
        let Some((kubeconfig, files)) = read_merged_kubeconfig(&paths, !self.kubeconfig.is_empty())? else {
            return self.connect_in_pod(&paths).await;
        };
        let contexts: Vec<String> = kubeconfig.contexts.iter().map(|c| c.name.clone()).collect();
        let files = if contexts.is_empty() { describe_empty_files(&paths, files) } else { files };
        let context = self.context.clone().or_else(|| kubeconfig.current_context.clone()).filter(|c| !c.is_empty());
        let Some(context) = context.filter(|wanted| contexts.contains(wanted)) else {
            let context = self.context.clone().or(kubeconfig.current_context).filter(|c| !c.is_empty());
            return Err(ClientError::Context { context, files, contexts });
        };
        let options = KubeConfigOptions { context: Some(context.clone()), ..KubeConfigOptions::default() };
        connect_context(kubeconfig, context, &options, files).await
    }

    /// The names of all contexts; none where the files cannot be read.
    pub fn list_contexts(&self) -> Vec<String> {
        let found = read_merged_kubeconfig(&self.kubeconfig_paths(), !self.kubeconfig.is_empty()).ok().flatten();
        found.map(|(config, _)| config.contexts.into_iter().map(|context| context.name).collect()).unwrap_or_default()
    }

    /// The API server's address as the files have it; none where they cannot be read or have no such context. No plugin runs.
    pub fn server_address(&self) -> Option<String> {
        let (config, _) =
            read_merged_kubeconfig(&self.kubeconfig_paths(), !self.kubeconfig.is_empty()).ok().flatten()?;
        let context = self.context.as_ref().or(config.current_context.as_ref())?;
        find_context_cluster(&config, context)?.server.clone()
    }

    fn kubeconfig_paths(&self) -> Vec<PathBuf> {
        if !self.kubeconfig.is_empty() {
            return self.kubeconfig.clone();
        }
        let listed: Vec<PathBuf> = std::env::var_os("KUBECONFIG")
            .map(|value| std::env::split_paths(&value).filter(|path| !path.as_os_str().is_empty()).collect())
            .unwrap_or_default();
        if !listed.is_empty() {
            return listed;
        }
        std::env::home_dir().map(|home| home.join(".kube").join("config")).into_iter().collect()
    }

    async fn connect_in_pod(&self, paths: &[PathBuf]) -> Result<Connected, ClientError> {
        if let Some(context) = &self.context {
            let files = format!("{}, which does not exist", join_paths(paths));
            return Err(ClientError::Context { context: Some(context.clone()), files, contexts: Vec::new() });
        }
        let looked = format!("{} does not exist, and this is not a pod", join_paths(paths));
        let config = Config::incluster().map_err(|_| ClientError::NoKubeconfig { looked })?;
        finish_connection(config, Fields::default(), None).await.map_err(|source| ClientError::Unusable {
            context: "in-cluster".to_owned(),
            files: "the pod".to_owned(),
            source,
        })
    }
}

/// A client of a whole kubeconfig that is at hand, such as one just written.
///
/// # Errors
/// [`ClientError`] when its current context cannot be used.
pub async fn connect_with(kubeconfig: Kubeconfig) -> Result<Connected, ClientError> {
    let context = kubeconfig.current_context.clone().unwrap_or_default();
    let options = KubeConfigOptions::default();
    connect_context(kubeconfig, context, &options, "the generated kubeconfig".to_owned()).await
}

/// Connects with a context; `files` is how the kubeconfig is named in errors.
async fn connect_context(
    kubeconfig: Kubeconfig,
    context: String,
    options: &KubeConfigOptions,
    files: String,
) -> Result<Connected, ClientError> {
    let fields = Fields::from_context(&kubeconfig, &context, &files);
    let connected = match config_of(kubeconfig, &context, options).await {
        Ok(config) => finish_connection(config, fields, Some(context.clone())).await,
        Err(error) => Err(error),
    };
    connected.map_err(|source| ClientError::Unusable { context, files, source })
}

/// The configuration of a context, with the proxy that it is to go through.
///
/// That of the kubeconfig counts whatever the environment says.
pub(in crate::k8s) async fn config_of(
    kubeconfig: Kubeconfig,
    context: &str,
    options: &KubeConfigOptions,
) -> Result<Config, Box<dyn std::error::Error + Send + Sync>> {
    let mut kubeconfig = kubeconfig_check::check_context(kubeconfig, context)?;
    let mut proxy = None;
    if let Some(cluster) = find_context_cluster_mut(&mut kubeconfig, context) {
        let server = cluster.server.as_deref().unwrap_or_default().parse()?;
        proxy = match cluster.proxy_url.as_deref().filter(|own| !own.is_empty()) {
            Some(own) => Some(own.parse()?),
            None => proxy::of_environment(&server)?,
        };
        // Where there is none, the library would read the variables by rules of its own.
        cluster.proxy_url = Some(proxy.as_ref().unwrap_or(&server).to_string());
    }
    let mut config = Config::from_custom_kubeconfig(kubeconfig, options).await?;
    config.proxy_url = proxy;
    Ok(config)
}

/// The cluster of a context.
fn find_context_cluster<'k>(kubeconfig: &'k Kubeconfig, context: &str) -> Option<&'k Cluster> {
    let context = kubeconfig.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()
}

/// The same, to be changed.
fn find_context_cluster_mut<'k>(kubeconfig: &'k mut Kubeconfig, context: &str) -> Option<&'k mut Cluster> {
    let context = kubeconfig.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    kubeconfig.clusters.iter_mut().find(|named| named.name == context.cluster)?.cluster.as_mut()
}

async fn finish_connection(
    mut config: Config,
    fields: Fields,
    context: Option<String>,
) -> Result<Connected, Box<dyn std::error::Error + Send + Sync>> {
    // The library's would take writes, too, and wait for as long as a server says.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // Without it the time that a pooled connection lay idle counts against the next answer.
    config.reset_reader_on_write = true;
    // Audit logs and the server's own bookkeeping name clients by it.
    let agent = http::HeaderValue::from_static(concat!("fleetctl/v", env!("CARGO_PKG_VERSION")));
    config.headers.push((http::header::USER_AGENT, agent));
    let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
    let namespace = config.default_namespace.clone();
    let unverified = explain_unverified_server(&config);
    // A log-in plugin may run here, and keep this thread waiting.
    let builder = tokio::task::spawn_blocking(move || connection::client_builder(config, fields)).await??;
    let repeats = Repeats { patience: PATIENCE, reopens_watches: true };
    let client = connection::with_repeats(builder.with_layer(&AnswerLimit).with_layer(&Trace), repeats);
    Ok(Connected { client, context, server, namespace, unverified })
}

/// Returns the reason that it is not known to be this server that answers; `None` where it is known. To this machine
/// itself, as to `kubectl proxy` or a tunnel, nobody is on the way.
fn explain_unverified_server(config: &Config) -> Option<&'static str> {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_own = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    if is_own {
        return None;
    }
    if config.cluster_url.scheme_str() != Some("https") {
        return Some("its server is not https, so anyone on the network path can read and change the traffic");
    }
    config.accept_invalid_certs.then_some("it sets `insecure-skip-tls-verify`, so any server can impersonate it")
}

/// Reads and merges files by client-go's rules. Files of a list may be missing, files given by flag may not.
fn read_merged_kubeconfig(paths: &[PathBuf], required: bool) -> Result<Option<(Kubeconfig, String)>, ClientError> {
    let mut merged: Option<Kubeconfig> = None;
    let mut used = Vec::new();
    for path in paths {
        let next = match kubeconfig_check::read_kubeconfig_file(path) {
            // As for kubectl: any other error leaves open what is in it.
            Err(ReadError::Read(error)) if !required && error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(ClientError::File { path: path.clone(), source: Box::new(source) }),
            Ok(next) => next,
        };
        merged = Some(match merged {
            // Fails on nothing that can be read: both have the one kind and version that there is.
            Some(former) => former
                .merge(next)
                .map_err(|source| ClientError::File { path: path.clone(), source: Box::new(source) })?,
            None => next,
        });
        used.push(path.clone());
    }
    Ok(merged.map(|config| (config, join_paths(&used))))
}

/// The files that were read, with what is to be seen of them where they have no context: that nothing is in them.
fn describe_empty_files(paths: &[PathBuf], files: String) -> String {
    let mut empty = paths.to_vec();
    empty.retain(|path| path.metadata().is_ok_and(|found| found.is_file() && found.len() == 0));
    match &empty[..] {
        [] => files,
        [one] => format!("{files} ({} is an empty file)", one.display()),
        several => format!("{files} ({} are empty files)", join_paths(several)),
    }
}

fn join_paths(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| Path::display(path).to_string()).collect();
    if names.is_empty() { "~/.kube/config".to_owned() } else { names.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, context: &str, current: bool) -> PathBuf {
        let path = folder.join(name);
        let current = if current { format!("current-context: {context}\n") } else { String::new() };
        let text = format!(
            "apiVersion: v1\nkind: Config\n{current}clusters:\n- name: {context}\n  cluster: {{server: \"http://127.0.0.1:1/{context}\"}}\n\
             contexts:\n- name: {context}\n  context: {{cluster: {context}, user: u, namespace: ns-{context}}}\nusers:\n- name: u\n  user: {{}}\n"
        );
        fs_err::write(&path, text).unwrap();
        path
    }

    #[test]
    fn empty_files_are_counted_where_there_is_no_context() {
        let folder = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| folder.path().join(name));
        fs_err::write(&paths[0], "").unwrap();
        fs_err::write(&paths[1], "kind: Config\n").unwrap();
        let (a, b) = (paths[0].display(), paths[1].display());
        assert_eq!(describe_empty_files(&paths, "FILES".to_owned()), format!("FILES ({a} is an empty file)"));
        fs_err::write(&paths[1], "").unwrap();
        assert_eq!(describe_empty_files(&paths, "FILES".to_owned()), format!("FILES ({a}, {b} are empty files)"));
    }

    #[tokio::test]
    async fn a_context_is_found_in_any_file_of_the_list() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = vec![file(folder.path(), "a", "one", true), file(folder.path(), "b", "two", false)];
        let one = Target { kubeconfig: kubeconfig.clone(), context: None }.connect_client().await.unwrap();
        assert_eq!((one.context.as_deref(), one.namespace.as_str()), (Some("one"), "ns-one"));
        let two = Target { kubeconfig, context: Some("two".into()) }.connect_client().await.unwrap();
        assert_eq!(two.server, "http://127.0.0.1:1/two");
    }

    #[tokio::test]
    async fn a_context_that_does_not_exist_is_answered_with_those_that_do() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = vec![file(folder.path(), "a", "one", true)];
        let error = Target { kubeconfig, context: Some("prod".into()) }.connect_client().await.unwrap_err();
        assert_eq!(error.reason(), "NoSuchContext");
        assert!(
            error.to_string().contains("no context `prod`") && error.to_string().contains("existing contexts: one"),
            "{error}"
        );
        assert_eq!(error.remedy().lone_flags(), [&Flag::Context(Some("one".to_owned()))]);
    }

    #[tokio::test]
    async fn a_file_that_is_broken_or_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("broken");
        fs_err::write(&path, "contexts: [").unwrap();
        let error = Target { kubeconfig: vec![path.clone()], context: None }.connect_client().await.unwrap_err();
        assert!(matches!(error, ClientError::File { .. }), "{error:?}");
        assert!(error.to_string().contains("broken"));
        let missing = folder.path().join("missing");
        let error = Target { kubeconfig: vec![missing], context: None }.connect_client().await.unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
    }
}
