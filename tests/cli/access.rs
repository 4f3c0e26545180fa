//! How a command comes to a cluster: through proxies, and with what a plugin of the kubeconfig gives it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::server::{Said, busy, kubeconfig, list, serve, serve_as_it_is, tls_kubeconfig, use_cluster};
use crate::{Ran, Sandbox};

/// A server that no name server knows: only a proxy reaches it.
const SERVER: &str = "http://hub.invalid:6443";

/// Starts what `one` does with each connection; its address, and what it says of them.
fn listen(one: fn(TcpStream, &Sender<String>) -> Option<()>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (say, said) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let say = say.clone();
            std::thread::spawn(move || one(stream, &say));
        }
    });
    (address, said)
}

/// The first line of a request and its headers.
fn head(reader: &mut BufReader<&TcpStream>) -> Option<Vec<String>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim() {
            "" => return Some(lines),
            line => lines.push(line.to_owned()),
        }
    }
}

/// Joins a client with a server that has no clusters, as a proxy does with the one that was asked for; the server gets this
/// first.
fn join(client: &TcpStream, first: &str) -> Option<()> {
    let server = serve(|_, _| list(&[]));
    let server = TcpStream::connect(server.trim_start_matches("http://")).ok()?;
    (&server).write_all(first.as_bytes()).ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
    });
    std::io::copy(&mut &server, &mut &*client).ok()?;
    client.shutdown(Shutdown::Both).ok()
}

/// Makes a tunnel where it is asked for one, and forwards other requests.
fn http_proxy() -> (String, Receiver<String>) {
    listen(|stream, say| {
        let head = head(&mut BufReader::new(&stream))?;
        say.send(head.join("\n")).ok()?;
        if head[0].starts_with("CONNECT ") {
            (&stream).write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
            return join(&stream, "");
        }
        let request = head[0].replacen(SERVER, "", 1);
        let headers = head[1..].iter().filter(|line| !line.to_lowercase().starts_with("proxy-"));
        let lines: Vec<&str> = std::iter::once(request.as_str()).chain(headers.map(String::as_str)).collect();
        join(&stream, &format!("{}\r\n\r\n", lines.join("\r\n")))
    })
}

/// Says the name of the host that was asked for.
fn socks_proxy() -> (String, Receiver<String>) {
    listen(|stream, say| {
        let bytes = |count: usize| {
            let mut bytes = vec![0; count];
            (&stream).read_exact(&mut bytes).ok().map(|()| bytes)
        };
        let methods = bytes(2)?[1];
        bytes(methods.into())?;
        (&stream).write_all(&[5, 0]).ok()?;
        let host = bytes(5)?[4];
        say.send(String::from_utf8(bytes(host.into())?).ok()?).ok()?;
        bytes(2)?;
        (&stream).write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
        join(&stream, "")
    })
}

fn clusters(sandbox: &Sandbox, config: &str, variables: &[(&str, &str)]) -> Ran {
    let file = sandbox.file("config", config);
    let args = ["get", "clusters", "-o", "name", "--kubeconfig", &file];
    Ran::of(sandbox.command().args(args).envs(variables.iter().copied()).output().unwrap())
}

#[test]
fn a_cluster_is_reached_through_the_proxy_of_the_environment() {
    let (proxy, said) = http_proxy();
    for (variable, scheme) in [("HTTP_PROXY", "http://"), ("http_proxy", "http://"), ("HTTP_PROXY", "")] {
        let value = format!("{scheme}me:secret@{proxy}");
        clusters(&Sandbox::new(), &kubeconfig("x", SERVER), &[(variable, &value)]).succeeds();
        let asked = said.recv().unwrap();
        assert!(asked.starts_with("GET http://hub.invalid:6443/apis/"), "{asked}");
        assert!(asked.to_lowercase().contains("proxy-authorization: basic"), "{asked}");
    }
    // With TLS, which the server behind it does not speak.
    let config = kubeconfig("x", &SERVER.replace("http:", "https:"));
    clusters(&Sandbox::new(), &config, &[("https_proxy", &format!("me:secret@{proxy}"))]).fails(1, &["cannot list"]);
    let asked = said.recv().unwrap();
    assert!(asked.starts_with("CONNECT hub.invalid:6443 "), "{asked}");
    assert!(asked.to_lowercase().contains("proxy-authorization: basic"), "{asked}");
}

#[test]
fn a_cluster_that_no_proxy_names_is_reached_without_one_and_every_other_through_it() {
    let nowhere = ("HTTP_PROXY", "http://proxy.invalid:2");
    let server = serve(|_, _| list(&[]));
    // This machine too, by an address that nobody takes for it.
    let elsewhere = server.replace("127.0.0.1", "0.0.0.0");
    for direct in ["0.0.0.0", "other.invalid,0.0.0.0/8", "*"] {
        clusters(&Sandbox::new(), &kubeconfig("x", &elsewhere), &[nowhere, ("NO_PROXY", direct)]).succeeds();
    }
    clusters(&Sandbox::new(), &kubeconfig("x", &elsewhere), &[nowhere, ("NO_PROXY", "other.invalid")])
        .fails(1, &["cannot list clusters"]);
    // What is on this machine for certain needs no such list, as with kubectl.
    for own in [server.clone(), server.replace("127.0.0.1", "localhost")] {
        clusters(&Sandbox::new(), &kubeconfig("x", &own), &[nowhere]).succeeds();
    }
    // It is about servers: where the proxy itself is does not matter.
    let (proxy, said) = http_proxy();
    let through = [("HTTP_PROXY", &*format!("http://{proxy}")), ("NO_PROXY", "127.0.0.1")];
    clusters(&Sandbox::new(), &kubeconfig("x", SERVER), &through).succeeds();
    assert!(said.recv().unwrap().starts_with("GET http://hub.invalid:6443/apis/"));
}

/// What the agent's probe says of a control plane, with these variables.
#[cfg(feature = "daemons")]
fn probed(server: &str, variables: &[(&str, &str)]) -> serde_json::Value {
    let sandbox = Sandbox::new();
    let text = crate::server::admin_kubeconfig("fleet", server);
    let file = sandbox.file("init", &text.replace("token: hub", "token: abcdef.0123456789abcdef"));
    let result = sandbox.path().join("result");
    let mut command = assert_cmd::Command::new(assert_cmd::cargo::cargo_bin!("fleet-agent"));
    command.env_clear().envs(variables.iter().copied());
    command.args(["probe", "--control-plane-kubeconfig", &file, "--result"]).arg(&result).output().unwrap();
    serde_json::from_str(&std::fs::read_to_string(result).unwrap()).unwrap()
}

#[cfg(feature = "daemons")]
#[test]
fn the_agent_reaches_the_control_plane_through_the_proxy_but_not_what_no_proxy_names() {
    let (proxy, said) = http_proxy();
    let through = probed(&SERVER.replace("http:", "https:"), &[("HTTPS_PROXY", &format!("http://{proxy}"))]);
    // The name means nothing here: only the proxy was asked for it.
    assert_eq!(through["hop"], "TLS", "{through}");
    assert!(said.recv().unwrap().starts_with("CONNECT hub.invalid:6443 "), "{through}");
    let server = serve(|_, _| list(&[])).replace("http://127.0.0.1", "https://0.0.0.0");
    let nowhere = ("HTTPS_PROXY", "http://proxy.invalid:2");
    let direct = probed(&server, &[nowhere, ("NO_PROXY", ".svc,10.0.0.0/8,0.0.0.0/8")]);
    assert_eq!(direct["hop"], "TLS", "it got as far as the certificate, which is for another address: {direct}");
    let lost = probed(&server, &[nowhere, ("NO_PROXY", ".svc")]);
    assert_ne!(lost["hop"], "TLS", "{lost}");
}

#[test]
fn the_proxy_of_a_kubeconfig_goes_before_that_of_the_environment() {
    let through = |proxy: &str| {
        let proxied = format!("server: \"{SERVER}\", proxy-url: \"{proxy}\"");
        let config = kubeconfig("x", SERVER).replace(&format!("server: \"{SERVER}\""), &proxied);
        // Whatever the list says of where the proxy is.
        let environment = [("HTTP_PROXY", "http://127.0.0.1:2"), ("NO_PROXY", "localhost,127.0.0.1")];
        clusters(&Sandbox::new(), &config, &environment).succeeds();
    };
    let (proxy, said) = http_proxy();
    through(&format!("http://{proxy}"));
    assert!(said.recv().unwrap().starts_with("GET http://hub.invalid:6443/apis/"));
    let (proxy, said) = socks_proxy();
    through(&format!("socks5://{proxy}"));
    assert_eq!(said.recv().unwrap(), "hub.invalid");
}

#[test]
fn the_token_of_an_exec_plugin_is_what_the_cluster_is_asked_with() {
    let sandbox = Sandbox::new();
    let asked = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&asked);
    let server = serve_as_it_is(move |asked| {
        *seen.lock().unwrap() = asked.authorization;
        Said { status: 200, head: b"x: y".to_vec(), body: list(&[]).1.to_string().into_bytes() }
    });
    let script = sandbox.file(
        "log-in",
        "#!/bin/sh\necho '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \
         \"status\": {\"token\": \"'\"$1\"'\"}}'\n",
    );
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let user = format!(
        "user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: \"{script}\", args: [from-plugin], \
         interactiveMode: Never}}}}"
    );
    let config = tls_kubeconfig("x", &server).replace("user: {}", &user);
    clusters(&sandbox, &config, &[]).succeeds();
    assert_eq!(asked.lock().unwrap().take().as_deref(), Some("Bearer from-plugin"));
    // Without TLS, nothing that proves who asks is sent.
    let config = kubeconfig("x", &server).replace("user: {}", &user);
    clusters(&sandbox, &config, &[]).succeeds();
    assert_eq!(asked.lock().unwrap().take(), None);
}

/// A plugin that is given a credential in its environment and its arguments, prints another, and fails.
const FAILING: &str = "#!/bin/sh\nprintf 'the session\\033[2J has ended\\n' >&2\necho '{\"status\": {\"token\": \"SECRET-out\"}}'\nexit 255\n";
/// The same that ends well, with something that is no credential.
const BABBLING: &str = "#!/bin/sh\necho '\"SECRET-out\"'\n";
/// A credential that has ended already, once; whoever asks again gets [`FAILING`].
const ENDED: &str = "#!/bin/sh\nif test -e \"$0.asked\"; then echo SECRET-out; echo again >&2; exit 1; fi\ntouch \"$0.asked\"\n\
     echo '{\"apiVersion\": \"client.authentication.k8s.io/v1\", \"kind\": \"ExecCredential\", \"status\": {\"token\": \"SECRET-out\", \
     \"expirationTimestamp\": \"2020-01-01T00:00:00Z\"}}'\n";

#[test]
fn a_plugin_that_fails_shows_what_it_said_and_none_of_what_it_was_given_or_gave() {
    for (script, mode, said) in [
        (FAILING, "Never", r"failed with exit status: 255; stderr: the session\u{1b}[2J has ended"),
        (FAILING, "IfAvailable", "failed with exit status: 255"),
        (BABBLING, "Never", "did not print an ExecCredential"),
        (ENDED, "Never", "failed with exit status: 1; stderr: again"),
        ("", "Never", "failed"),
    ] {
        for flags in [
            &[][..],
            &["-o", "json"],
            &["--verbose"],
            &["--verbose", "--verbose", "--verbose"],
            &["--verbose", "--log-format", "json"],
        ] {
            let sandbox = Sandbox::new();
            let file = sandbox.file("log-in", script);
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o700)).unwrap();
            let user = format!(
                "user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: \"{file}\", args: [--key, SECRET-arg], \
                 env: [{{name: AWS_SECRET_ACCESS_KEY, value: SECRET-env}}], interactiveMode: {mode}}}}}"
            );
            let server = serve(|_, _| list(&[]));
            let config = sandbox.file("config", &tls_kubeconfig("x", &server).replace("user: {}", &user));
            let args = [&["get", "clusters", "--kubeconfig", &config], flags].concat();
            let ran = Ran::of(sandbox.command().args(args).env("RUST_LOG", "trace").output().unwrap());
            let shown = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!shown.contains("SECRET"), "{flags:?}: {shown}");
            if script.is_empty() {
                continue;
            }
            let said = if flags == ["-o", "json"] { said.replace('\\', r"\\") } else { said.to_owned() };
            assert!(ran.code == 1 && shown.contains(&said), "{flags:?}: {said} is not in {shown}");
        }
    }
}

#[test]
fn a_kubeconfig_that_cannot_be_read_is_told_without_its_lines() {
    let sandbox = Sandbox::new();
    let good = kubeconfig("x", "https://127.0.0.1:1");
    for (user, said) in [
        "user: SECRET",
        "user: {token: SECRET, x: [}",
        "user: {token: [SECRET]}",
        "user: {token: SECRET\n  client-key-data: {}}",
    ]
    .into_iter()
    .zip(["`users[name=u].user` is a string", "line ", "`users[name=u].user.token` is a list", "line "])
    {
        let config = sandbox.file("config", &good.replace("user: {}", user));
        let ran = sandbox.run(&["get", "clusters", "--kubeconfig", &config, "--verbose"]);
        ran.fails(1, &["cannot use the kubeconfig", said]);
        assert!(!ran.stderr.contains("SECRET"), "{ran:?}");
    }
}

#[test]
fn a_server_that_is_too_busy_is_asked_again() {
    let sandbox = Sandbox::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = serve(move |_, _| if count.fetch_add(1, Ordering::SeqCst) < 2 { busy() } else { list(&[]) });
    use_cluster(&sandbox, &server);
    sandbox.run(&["get", "clusters"]).succeeds();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[test]
fn a_server_that_stays_too_busy_is_asked_six_times_and_told() {
    let sandbox = Sandbox::new();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = serve(move |_, _| {
        count.fetch_add(1, Ordering::SeqCst);
        busy()
    });
    use_cluster(&sandbox, &server);
    sandbox.run(&["get", "clusters"]).fails(1, &["etcdserver: leader changed", "try again"]);
    assert_eq!(asked.load(Ordering::SeqCst), 6);
}

#[test]
fn a_server_that_never_answers_is_given_up_when_the_time_of_the_run_is_up() {
    let sandbox = Sandbox::new();
    let (server, _) = listen(|stream, _| {
        head(&mut BufReader::new(&stream))?;
        // Until the other side gives up.
        (&stream).read(&mut [0]).ok().map(|_| ())
    });
    use_cluster(&sandbox, &format!("http://{server}"));
    for command in [["install", "cp", "demo", "--timeout", "2s"], ["diff", "cp", "demo", "--timeout", "2s"]] {
        let began = std::time::Instant::now();
        sandbox.run(&command).fails(4, &["the run timed out before the API server answered"]);
        // One answer may take a minute.
        assert!(began.elapsed() < std::time::Duration::from_secs(45), "{:?}", began.elapsed());
    }
    // Of what programs read, --quiet leaves what it leaves for people.
    let told = |more: &[&str]| {
        let ran = sandbox.run(&[&["install", "cp", "demo", "--timeout", "2s", "-o", "json"], more].concat());
        let lines = ran.stderr.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.map(|line| (line["type"].as_str().unwrap().to_owned(), line["sequence"].as_u64())).collect::<Vec<_>>()
    };
    assert!(told(&[]).iter().any(|(kind, _)| kind == "step"));
    assert_eq!(told(&["--quiet"]), [("error".to_owned(), Some(1))]);
}
