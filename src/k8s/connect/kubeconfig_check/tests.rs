use super::*;

/// A kubeconfig with these fields of its cluster and its user, as flow mappings without braces.
fn of(cluster: &str, user: &str) -> Kubeconfig {
    let text = format!(
        "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
         clusters: [{{name: k, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
    );
    parse_kubeconfig(&text).unwrap()
}

/// A certificate and its key, in base64 of PEM.
fn pair() -> (String, String) {
    let pair = rcgen::generate_simple_self_signed(["h".to_owned()]).unwrap();
    (STANDARD.encode(pair.cert.pem()), STANDARD.encode(pair.signing_key.serialize_pem()))
}

fn server(cluster: &str, user: &str) -> Result<String, String> {
    let checked = check_context(of(cluster, user), "c").map_err(|error| error.to_string())?;
    Ok(checked.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap())
}

#[test]
fn a_server_without_a_scheme_gets_the_one_that_kubectl_takes_unless_a_secret_would_be_sent_in_the_clear() {
    let (certificate, key) = pair();
    for more in [format!("certificate-authority-data: {certificate}"), "insecure-skip-tls-verify: true".to_owned()] {
        assert_eq!(server(&format!("server: 'host:6443', {more}"), "token: x").unwrap(), "https://host:6443/");
    }
    let user = format!("client-certificate-data: {certificate}, client-key-data: {key}");
    assert_eq!(server("server: host", &user).unwrap(), "https://host/");
    assert_eq!(server("server: 'localhost:8001'", "").unwrap(), "http://localhost:8001/");
    for user in [
        "token: x",
        "tokenFile: /proc/version",
        "username: a, password: b",
        "exec: {command: c, apiVersion: client.authentication.k8s.io/v1beta1}",
        "auth-provider: {name: oidc, config: {id-token: i}}",
    ] {
        let error = server("server: 'host:6443'", user).unwrap_err();
        assert_eq!(error, "`clusters[name=k].cluster.server` has neither http:// nor https:// before the host");
    }
}

#[test]
fn servers_and_proxies_are_taken_as_they_are_or_their_field_is_named() {
    for (given, taken) in [
        ("https://h:1", "https://h:1/"),
        ("HTTPS://h", "https://h/"),
        ("https://h:/k8s/clusters/c-1/", "https://h:/k8s/clusters/c-1/"),
        ("https://[::1]:6443", "https://[::1]:6443/"),
        ("https://u:p@h:1/a?b=c", "https://h:1/a"),
    ] {
        assert_eq!(server_url(given, None).unwrap(), taken);
    }
    for given in [
        "",
        "http://",
        "https://",
        "https:///x",
        "://x",
        "/var/run/x",
        "*",
        "h:6443",
        "a\nb",
        "ftp://h",
        "unix:///x",
        "https://[::1",
        "https://h:99999",
        "https://h:-1",
        "https://h:x",
        "https://a b",
        "https://h/a b",
        "https://b\u{fc}cher",
        "https://@",
        "https://u@:1",
        "https:h",
    ] {
        assert!(server_url(given, None).is_err(), "{given}");
    }
    for given in ["h:6443/x", "://x", "/x", "a b", "a\nb", "[::1"] {
        assert!(server_url(given, Some("http")).is_err(), "{given}");
    }
    let proxy = |given: &str| parse_proxy_url(given, &["http", "https", "socks5"]).map(|url| url.to_string());
    for (given, url) in [
        ("http://p", "http://p/"),
        ("https://u:p@p:1", "https://u:p@p:1/"),
        ("socks5://127.0.0.1:1081", "socks5://127.0.0.1:1081/"),
        ("SOCKS5://[::1]", "socks5://[::1]:1080/"),
        ("HTTP://p:3128/", "http://p:3128/"),
    ] {
        assert_eq!(proxy(given).as_deref(), Ok(url));
    }
    for given in ["p:3128", "*", "/x", "http://", "socks5h://p", "http://p:99999", "http://[::1", "://p"] {
        assert!(proxy(given).is_err(), "{given}");
    }
    let error = server("server: 'https://h', proxy-url: 'p:3128'", "").unwrap_err();
    assert_eq!(error, "`clusters[name=k].cluster.proxy-url` has no scheme: http://, https:// or socks5:// is required");
}

#[test]
fn what_the_library_would_panic_over_or_read_wrongly_is_named_by_its_field_and_never_quoted() {
    for (user, field, problem) in [
        ("token: \"hun\\nter2\"", "token", "control character"),
        ("token: \"hunter2\\n\"", "token", "control character"),
        ("token: REDACTED", "token", "--raw"),
        (&format!("client-certificate-data: {}, client-key-data: DATA+OMITTED", pair().0), "client-key-data", "--raw"),
        ("client-certificate-data: DATA+OMITTED", "client-certificate-data", "--raw"),
        (
            "client-certificate: /nonexistent/x",
            "client-certificate",
            "cannot be read: /nonexistent/x: the folder `/nonexistent` does not exist",
        ),
        (
            &format!("client-certificate-data: {}, client-key: /dev/zero", pair().0),
            "client-key",
            "cannot be read: /dev/zero: it is larger than 4 MiB",
        ),
        (
            &format!("client-certificate-data: {}, client-key-data: aHVudGVyMg==", pair().0),
            "client-key-data",
            "no unencrypted PEM private key",
        ),
        (&format!("client-certificate-data: {}", pair().0), "client-key-data", "missing"),
        ("client-certificate-data: '%hunter2'", "client-certificate-data", "not base64"),
        ("exec: {command: a}", "exec.apiVersion", "missing"),
        ("exec: {command: a, apiVersion: hunter2}", "exec.apiVersion", "no longer supported by Kubernetes"),
        (
            "exec: {command: a, apiVersion: client.authentication.k8s.io/v1, interactiveMode: hunter2}",
            "exec.interactiveMode",
            "is unknown",
        ),
        ("as-groups: [hunter2]", "as-groups", "requires `as`"),
        ("as: \"hunter2\\n\"", "as", "control"),
        ("tokenFile: /dev/zero", "tokenFile", "larger than 4 MiB"),
        ("auth-provider: {name: gcp, config: {cmd-path: hunter2}}", "auth-provider", "gcp"),
        ("auth-provider: {name: oidc, config: {id-token: \"hun\\nter2\"}}", "auth-provider.config.id-token", "control"),
    ] {
        let error = server("server: 'https://h'", user).unwrap_err();
        assert!(
            error.starts_with(&format!("`users[name=u].user.{field}` ")) && error.contains(problem),
            "{user}: {error}"
        );
        assert!(!error.contains("hun"), "{error}");
    }
    for authority in ["certificate-authority-data: DATA+OMITTED", "certificate-authority: /dev/zero"] {
        let error = server(&format!("server: 'https://h', {authority}"), "").unwrap_err();
        let field = authority.split(':').next().unwrap();
        assert!(error.starts_with(&format!("`clusters[name=k].cluster.{field}` ")), "{error}");
    }
}

#[test]
fn empty_is_none_and_line_breaks_in_base64_do_not_count() {
    let empty = "tls-server-name: '', certificate-authority: /dev/null, certificate-authority-data: ''";
    let user = "token: '', tokenFile: '', client-certificate: '', client-key-data: ''";
    let checked = check_context(of(&format!("server: 'https://h', {empty}"), user), "c").unwrap();
    let cluster = checked.clusters[0].cluster.clone().unwrap();
    let given = [cluster.tls_server_name, cluster.certificate_authority, cluster.certificate_authority_data];
    assert_eq!(given, [None, None, None]);
    let user = serde_json::to_value(checked.auth_infos[0].auth_info.as_ref().unwrap()).unwrap();
    assert_eq!(
        user["token"].as_str().or(user["tokenFile"].as_str()).or(user["client-key-data"].as_str()),
        None,
        "{user}"
    );
    let certificate = pair().0;
    let folded =
        certificate.as_bytes().chunks(9).map(|line| str::from_utf8(line).unwrap()).collect::<Vec<_>>().join("\\r\\n");
    let cluster = format!("server: 'https://h', certificate-authority-data: \"{folded}\"");
    let checked = super::check_context(of(&cluster, ""), "c").unwrap();
    assert!(checked.clusters[0].cluster.as_ref().unwrap().certificate_authority_data.is_some());
}

#[test]
fn a_file_is_read_in_the_encodings_of_shells_with_its_paths_and_within_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    let text = "clusters: [{name: k, cluster: {certificate-authority: ca.crt}}]\n\
                users: [{name: u, user: {tokenFile: t, client-key: /k, exec: {command: ./plugin}}}, {name: v, user: {exec: {command: aws}}}]\n";
    let [ca, token, plugin] =
        ["ca.crt", "t", "./plugin"].map(|name| Some(folder.path().join(name).to_str().unwrap().to_owned()));
    for bytes in [
        text.as_bytes().to_vec(),
        [&[0xef, 0xbb, 0xbf], text.as_bytes()].concat(),
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect(),
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect(),
    ] {
        fs_err::write(&path, bytes).unwrap();
        let read = read_kubeconfig_file(&path).unwrap();
        assert_eq!(read.clusters[0].cluster.as_ref().unwrap().certificate_authority, ca);
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!((&user.token_file, user.client_key.as_deref()), (&token, Some("/k")));
        assert_eq!(user.exec.as_ref().unwrap().command, plugin);
        assert_eq!(
            read.auth_infos[1].auth_info.as_ref().unwrap().exec.as_ref().unwrap().command.as_deref(),
            Some("aws")
        );
    }
    for bytes in [&b"\xff\xfea"[..], b"\xff\xfe\x00\xd8", b"\xfe\xff\x00", b"\xef\xbb\xbf\xff", b"\xff"] {
        fs_err::write(&path, bytes).unwrap();
        assert!(matches!(read_kubeconfig_file(&path), Err(ReadError::Read(_))), "{bytes:?}");
    }
    fs_err::write(&path, "users:\n- name: u\n  user:\n    token: hunter2\n    exec: []\n").unwrap();
    let error = read_kubeconfig_file(&path).unwrap_err().to_string();
    assert!(
        error.contains("`users[name=u].user.exec` is a list, but a mapping is required") && !error.contains("hunter2"),
        "{error}"
    );
    assert!(read_kubeconfig_file(Path::new("/dev/zero")).unwrap_err().to_string().contains("larger than 4 MiB"));
}

#[test]
fn without_tls_nothing_is_sent_that_proves_who_asks() {
    let user = "token: hunter2, as: somebody";
    let checked = check_context(of("server: 'http://h'", user), "c").unwrap();
    let user = checked.auth_infos[0].auth_info.as_ref().unwrap();
    assert!(user.token.is_none() && user.impersonate.as_deref() == Some("somebody"));
}

#[test]
fn entries_without_values_that_nobody_uses_do_no_harm() {
    let more = "preferences: null\nextensions: [{name: a}]\ncontexts: [{name: c, context: {cluster: k}}, {name: d}, {context: {namespace: ns}}]\n\
                clusters: [{name: k, cluster: {server: 'https://h', extensions: [{name: b}]}}, {name: l}]\n\
                users: [{name: v, user: {auth-provider: {config: null}, exec: {env: [{name: a, value: null}], args: null}}}, {name: w, user: null}]\n";
    let checked = check_context(parse_kubeconfig(more).unwrap(), "c").unwrap();
    assert_eq!(checked.clusters[0].cluster.as_ref().unwrap().server.as_deref(), Some("https://h/"));
    for (text, place) in [
        ("kind: Pod", "`kind` is not Config"),
        ("apiVersion: v2", "`apiVersion` is not v1"),
        ("[]", "`the file` is a list"),
        ("clusters: {}", "`clusters` is a mapping, but a list is required"),
        ("clusters: [a]", "`clusters[0]` is a string, but a mapping is required"),
        (
            "users: [{name: u, user: {token: 1}}]",
            "`users[name=u].user.token` is a number, but a string is required: put it in quotes",
        ),
        ("users: [{name: u, user: {exec: {args: [1]}}}]", "`users[name=u].user.exec.args` is a number"),
        (
            "users: [{name: u, user: {exec: {env: [{name: a, value: []}]}}}]",
            "`users[name=u].user.exec.env[name=a].value` is a list",
        ),
        (
            "users: [{name: u, user: {as-user-extra: {k: v}}}]",
            "`users[name=u].user.as-user-extra.k` is a string, but a list",
        ),
        ("contexts: [{name: a}, {name: a}]", "`contexts` contains the name a twice"),
    ] {
        let error = parse_kubeconfig(text).unwrap_err().to_string();
        assert!(error.starts_with(place), "{text}: {error}");
    }
}
