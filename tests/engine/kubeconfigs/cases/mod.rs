//! The cases: a kubeconfig each, made of what a field may hold, and what comes of it.

mod certificates;
mod users;

use super::world::{World, encoded};

/// What `fleetctl` does beside `kubectl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    /// The same.
    Same,
    /// It connects where kubectl refuses.
    More,
    /// It refuses where kubectl connects.
    Less,
}

/// A kubeconfig, with the files and the environment that belong to it.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Files by name; those in `bin` are programs on PATH.
    pub(super) files: Vec<(String, String)>,
    /// The files of KUBECONFIG.
    pub(super) listed: Vec<&'static str>,
    pub(super) env: Vec<(String, String)>,
    /// Words of a refusal, with `|` between them; none where both connect.
    pub(super) refused: &'static str,
    pub(super) expected: Expected,
}

impl Case {
    fn of(name: &'static str, kubeconfig: String) -> Self {
        let files = vec![("config".to_owned(), kubeconfig)];
        Self { name, files, listed: vec!["config"], env: Vec::new(), refused: "", expected: Expected::Same }
    }

    fn file(mut self, name: &str, text: &str) -> Self {
        self.files.push((name.to_owned(), text.to_owned()));
        self
    }

    fn listed(mut self, names: &[&'static str]) -> Self {
        self.listed = names.to_vec();
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Both refuse it, and `fleetctl` with these words.
    fn refused(self, words: &'static str) -> Self {
        Self { refused: words, ..self }
    }

    fn more(self) -> Self {
        Self { expected: Expected::More, ..self }
    }

    fn less(self, words: &'static str) -> Self {
        Self { expected: Expected::Less, refused: words, ..self }
    }
}

/// One context `c` over a cluster `k` and a user `u`, whose fields are flow mappings without braces.
fn config(cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{cluster: k, user: u}}\n\
         clusters:\n- name: k\n  cluster: {{{cluster}}}\nusers:\n- name: u\n  user: {{{user}}}\n"
    )
}

pub(super) fn cases(world: &World) -> Vec<Case> {
    [of_files(world), of_clusters(world), certificates::cases(world), users::cases(world), users::of_plugins(world)]
        .into_iter()
        .flatten()
        .collect()
}

/// The fields of a cluster that lead to a server, as a user with this token is let in.
fn at(world: &World, front: &str) -> String {
    let front = world.front(front);
    format!("server: 'https://127.0.0.1:{}', certificate-authority-data: {}", front.port, encoded(&front.ca))
}

fn token(world: &World) -> String {
    format!("token: {}", world.token)
}

fn of_files(world: &World) -> Vec<Case> {
    let good = config(&at(world, "plain"), &token(world));
    let of = |name, from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        Case::of(name, good.replacen(from, to, 1))
    };
    let rest = |text: &str| good.split_once(text).unwrap().1.to_owned();
    let context = "contexts:\n- name: c\n  context: {cluster: k, user: u}\n";
    vec![
        of("kind-left-out", "kind: Config\n", ""),
        of("version-left-out", "apiVersion: v1\nkind: Config\n", ""),
        of("kind-other", "kind: Config\n", "kind: Pod\n").refused("`kind`|Config"),
        of("version-other", "apiVersion: v1\n", "apiVersion: v2\n").refused("`apiVersion`|v1"),
        of("version-empty", "apiVersion: v1\nkind: Config\n", "apiVersion: ''\nkind: ''\n"),
        of("preferences", "current-context", "preferences: {colors: true, extensions: [{name: a, extension: {b: 1}}]}\ncurrent-context"),
        of("preferences-null", "current-context", "preferences: null\nextensions: null\ncurrent-context"),
        of("extensions", "current-context", "extensions: [{name: a, extension: {b: 1}}, {name: d}, {name: e, extension: null}]\ncurrent-context"),
        of("unknown-fields", "current-context", "more: [1]\ncurrent-context"),
        of("context-left-out", "current-context: c\n", "").refused("no current context is set"),
        of("context-unknown", "current-context: c\n", "current-context: other\n").refused("no context `other`"),
        of("context-null", context, "contexts: null\n").refused("no context `c`"),
        Case::of("context-without-cluster", good.replace("cluster: k, ", "")).refused("`contexts[name=c].context.cluster`"),
        Case::of("context-other-cluster", good.replace("cluster: k, ", "cluster: other, ")).refused("`contexts[name=c].context.cluster`|other"),
        Case::of("context-without-user", config(&at(world, "plain"), "").replace(", user: u", "")).more(),
        Case::of("context-empty-user", config(&at(world, "plain"), "").replace("user: u", "user: ''")).more(),
        Case::of("context-other-user", good.replace("user: u", "user: other")).refused("`contexts[name=c].context.user`|other"),
        Case::of("context-namespace", good.replace("user: u", "user: u, namespace: other, extensions: [{name: a, extension: b}]")),
        Case::of("name-left-out", good.replace("- name: c\n  context", "- context")).refused("config"),
        // What the context does not use.
        Case::of("others-incomplete", good.replace("contexts:\n", "contexts:\n- name: a\n- name: b\n  context: {namespace: x}\n- name: d\n  context: null\n")
            .replace("clusters:\n", "clusters:\n- name: p\n- name: q\n  cluster: {}\n").replace("users:\n", "users:\n- name: p\n- name: q\n  user: null\n")),
        Case::of("others-of-providers", good.replace("users:\n", "users:\n- name: p\n  user: {auth-provider: {name: gcp, config: null}}\n- name: q\n  user: {exec: {args: null, env: null, command: x, apiVersion: client.authentication.k8s.io/v1beta1, interactiveMode: IfAvailable, provideClusterInfo: false}}\n")),
        Case::of("name-twice", good.replace("clusters:\n", "clusters:\n- name: k\n  cluster: {server: 'http://127.0.0.1:1'}\n")).refused("`clusters`|k|twice"),
        Case::of("key-twice", good.replace("current-context: c\n", "current-context: a\ncurrent-context: c\n")),
        Case::of("wrong-type", good.replace("cluster: {", "cluster: {insecure-skip-tls-verify: 'yes', ")).refused("`clusters[name=k].cluster.insecure-skip-tls-verify`|boolean"),
        Case::of("wrong-type-of-secret", config(&at(world, "plain"), "token: 123")).refused("`users[name=u].user.token`|quotes"),
        Case::of("wrong-type-of-list", config(&at(world, "plain"), "as: a, as-groups: s3cret")).refused("`users[name=u].user.as-groups`|list"),
        Case::of("words-of-yaml-1.1", good.replace("cluster: {", "cluster: {insecure-skip-tls-verify: no, disable-compression: On, ")),
        Case::of("two-documents", format!("{good}---\ncurrent-context: other\n")),
        Case::of("second-document", format!("apiVersion: v1\nkind: Config\n---\n{good}"))
            .refused("no current context is set"),
        Case::of("json", serde_json::to_string(&serde_saphyr::from_str::<serde_json::Value>(&good).unwrap()).unwrap()),
        Case::of("byte-order-mark", format!("\u{feff}{}", good.replace('\n', "\r\n"))),
        Case::of("empty-file", String::new()).refused("no current context is set"),
        // Lists of files: the first one that has a name counts, and all of what it says of it.
        Case::of("files-merged", format!("current-context: c\n{context}"))
            .file("second", &format!("clusters:{}", rest("clusters:"))).listed(&["config", "missing", "second"]),
        Case::of("files-first-wins", good.clone())
            .file("second", &config("server: 'http://127.0.0.1:1'", "token: s3cret")).listed(&["config", "second"]),
        Case::of("files-not-mixed", config(&format!("server: 'https://127.0.0.1:{}'", world.front("plain").port), ""))
            .file("second", &good).listed(&["config", "second"]).refused("UnknownIssuer"),
        Case::of("files-first-current", "current-context: ''\n".to_owned()).file("second", &good).listed(&["config", "second"]),
        Case::of("files-other-kinds", good.clone()).file("second", "kind: Other\nclusters: []\n").listed(&["config", "second"]).refused("`kind`|second"),
        Case::of("files-broken", good.clone()).file("second", "clusters: [").listed(&["config", "second"]).refused("second"),
        Case::of("files-empty", good.clone()).file("second", "").listed(&["second", "config"]),
        Case::of("files-relative", String::new())
            .file("one/config", &config(&format!("server: 'https://127.0.0.1:{}', certificate-authority: ca.crt", world.front("plain").port), "tokenFile: ../token"))
            .file("one/ca.crt", &world.front("plain").ca).file("token", &world.token).listed(&["one/config"]),
    ]
}

fn of_clusters(world: &World) -> Vec<Case> {
    let (port, named) = (world.front("plain").port, world.front("named"));
    let (plain, proxy, socks) = (world.plain, world.http_proxy, world.socks_proxy);
    let good = at(world, "plain");
    let user = token(world);
    let with = |name, more: &str| Case::of(name, config(&format!("{good}, {more}"), &user));
    let server = |name, server: &str, user: &str| {
        Case::of(name, config(&good.replace(&format!("https://127.0.0.1:{port}"), server), user))
    };
    let bare = |name, server: &str, user: &str| Case::of(name, config(&format!("server: '{server}'"), user));
    let real = |name| {
        let cluster = format!("server: '{}', certificate-authority-data: {}", world.server, encoded(&world.server_ca));
        Case::of(name, config(&cluster, &user))
    };
    let address = world.server.trim_start_matches("https://");
    let by_name =
        format!("server: 'https://127.0.0.1:{}', certificate-authority-data: {}", named.port, encoded(&named.ca));
    let insecure = format!("server: 'https://127.0.0.1:{}', insecure-skip-tls-verify: true", named.port);
    vec![
        server("server", &format!("https://127.0.0.1:{port}/"), &user),
        server("server-name", &format!("https://localhost:{port}"), &user),
        Case::of(
            "server-no-scheme",
            config(
                &format!(
                    "server: '{}', certificate-authority-data: {}",
                    world.server.trim_start_matches("https://"),
                    encoded(&world.server_ca)
                ),
                &user,
            ),
        )
        .more(),
        bare("server-no-scheme-plain", &format!("127.0.0.1:{plain}"), ""),
        bare("server-no-scheme-secret", &format!("127.0.0.1:{plain}"), &user)
            .less("`clusters[name=k].cluster.server`|https://"),
        bare("server-http", &format!("http://127.0.0.1:{plain}"), &user),
        server("server-upper-case", &format!("HTTPS://127.0.0.1:{port}"), &user),
        server("server-slashes", &format!("https://127.0.0.1:{port}//"), &user),
        server("server-query", &format!("https://127.0.0.1:{port}/?a=b"), &user),
        server("server-empty", "", &user).refused("`clusters[name=k].cluster.server`"),
        server("server-other-scheme", &format!("ftp://127.0.0.1:{port}"), &user)
            .refused("`clusters[name=k].cluster.server`|https://"),
        server("server-bad-port", "https://127.0.0.1:99999", &user).refused("`clusters[name=k].cluster.server`|port"),
        Case::of("server-left-out", config("tls-server-name: a", &user)).refused("`clusters[name=k].cluster.server`"),
        Case::of("server-null", config("server: null, tls-server-name: a", &user))
            .refused("`clusters[name=k].cluster.server`"),
        Case::of("cluster-null", config("", &user).replace("cluster: {}", "cluster: null"))
            .refused("`clusters[name=k]"),
        Case::of("tls-server-name", config(&format!("{by_name}, tls-server-name: api.example.com"), &user)),
        Case::of("tls-server-name-missing", config(&by_name, &user))
            .refused("127.0.0.1|api.example.com|`clusters[name=k].cluster.tls-server-name`"),
        with("tls-server-name-address", "tls-server-name: 127.0.0.1"),
        with("tls-server-name-empty", "tls-server-name: ''"),
        with("tls-server-name-other", "tls-server-name: other.example.com")
            .refused("`clusters[name=k].cluster.tls-server-name`|other.example.com"),
        with("tls-server-name-bad", "tls-server-name: 'a b'").refused("`clusters[name=k].cluster.tls-server-name`"),
        Case::of("insecure", config(&insecure, &user)),
        Case::of("insecure-proxied", config(&format!("{insecure}, proxy-url: 'http://127.0.0.1:{proxy}'"), &user)),
        with("insecure-false", "insecure-skip-tls-verify: false"),
        with("insecure-with-ca", "insecure-skip-tls-verify: true")
            .refused("`clusters[name=k].cluster.insecure-skip-tls-verify`"),
        with("compression", "disable-compression: true"),
        with("cluster-extensions", "extensions: [{name: a, extension: {b: 1}}]"),
        with("proxy-http", &format!("proxy-url: 'http://127.0.0.1:{proxy}'")),
        with("proxy-http-log-in", &format!("proxy-url: 'http://me:s3cret%40@127.0.0.1:{proxy}'")),
        with("proxy-socks", &format!("proxy-url: 'socks5://127.0.0.1:{socks}'")),
        with("proxy-empty", "proxy-url: ''"),
        with("proxy-no-scheme", &format!("proxy-url: '127.0.0.1:{proxy}'"))
            .refused("`clusters[name=k].cluster.proxy-url`"),
        with("proxy-other-scheme", &format!("proxy-url: 'ftp://127.0.0.1:{proxy}'"))
            .refused("`clusters[name=k].cluster.proxy-url`"),
        with("proxy-before-environment", &format!("proxy-url: 'http://127.0.0.1:{proxy}'"))
            .env("HTTPS_PROXY", "http://127.0.0.1:1"),
        with("proxy-despite-no-proxy", &format!("proxy-url: 'http://127.0.0.1:{proxy}'")).env("NO_PROXY", "*"),
        with("proxy-with-server-name", &format!("proxy-url: 'http://127.0.0.1:{proxy}', tls-server-name: localhost")),
        with("proxy-socks-log-in", &format!("proxy-url: 'socks5://me:s3cret%40@127.0.0.1:{socks}'")),
        with("proxy-upper-case", &format!("proxy-url: 'SOCKS5://127.0.0.1:{socks}'")),
        with("proxy-despite-environment", &format!("proxy-url: 'http://127.0.0.1:{proxy}'"))
            .env("HTTPS_PROXY", "http://%%")
            .env("NO_PROXY", "two words"),
        // Without TLS, a proxy gets the request itself.
        Case::of(
            "proxy-plain",
            config(
                &format!("server: 'http://plain.example.com', proxy-url: 'http://me:s3cret%40@127.0.0.1:{proxy}'"),
                "",
            ),
        ),
        bare("environment-plain", "http://plain.example.com:8080/x", "")
            .env("HTTP_PROXY", &format!("http://127.0.0.1:{proxy}"))
            .env("HTTPS_PROXY", "http://127.0.0.1:1"),
        with("environment-this-machine", "disable-compression: false").env("HTTPS_PROXY", "http://127.0.0.1:1"),
        real("environment-proxy").env("HTTPS_PROXY", &format!("http://127.0.0.1:{proxy}")),
        real("environment-no-scheme").env("https_proxy", &format!("127.0.0.1:{proxy}")),
        real("environment-user").env("HTTPS_PROXY", &format!("http://s3cret@127.0.0.1:{proxy}")),
        real("environment-socks").env("HTTPS_PROXY", &format!("socks5://127.0.0.1:{socks}")),
        real("environment-socks-names").env("HTTPS_PROXY", &format!("socks5h://127.0.0.1:{socks}")),
        real("environment-of-plain").env("HTTP_PROXY", "http://127.0.0.1:1").env("ALL_PROXY", "http://127.0.0.1:1"),
        real("environment-no-url").env("HTTPS_PROXY", "http://me:s3cret#@127.0.0.1:1").refused("HTTPS_PROXY|port"),
        real("environment-unreachable")
            .env("HTTPS_PROXY", "http://me:s3cret@127.0.0.1:1")
            .refused("http://127.0.0.1:1 (HTTPS_PROXY)"),
        real("environment-white-space").env("HTTPS_PROXY", " http://127.0.0.1:1"),
        real("environment-no-proxy").env("HTTPS_PROXY", "http://127.0.0.1:1").env("NO_PROXY", "10.0.0.0/8"),
        real("environment-no-proxy-port").env("HTTPS_PROXY", "http://127.0.0.1:1").env("NO_PROXY", address),
        real("environment-no-proxy-other-port")
            .env("HTTPS_PROXY", &format!("http://127.0.0.1:{proxy}"))
            .env("NO_PROXY", &format!("{}:1", address.split(':').next().unwrap())),
        real("environment-no-proxy-unreadable")
            .env("HTTPS_PROXY", "http://127.0.0.1:1")
            .env("NO_PROXY", "two words, 10.0.0.0/33,,*.example.com, 10.0.0.0/8"),
        real("environment-no-proxy-all").env("HTTPS_PROXY", "http://127.0.0.1:1").env("no_proxy", "a.example.com, *"),
    ]
}
