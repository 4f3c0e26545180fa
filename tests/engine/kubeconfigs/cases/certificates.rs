//! What a server shows, and what is trusted.

use super::{Case, World, at, config, encoded, token};

pub(super) fn cases(world: &World) -> Vec<Case> {
    let user = token(world);
    let shown = |name, front: &str| Case::of(name, config(&at(world, front), &user));
    let trusted = |name, front: &str, more: &str| {
        let server = format!("server: 'https://127.0.0.1:{}'", world.front(front).port);
        Case::of(name, config(&if more.is_empty() { server } else { format!("{server}, {more}") }, &user))
    };
    let data = |text: &str| format!("certificate-authority-data: {}", encoded(text));
    let plain = world.front("plain");
    let lines = |text: &str| {
        let all = encoded(text);
        let lines: Vec<&str> = all.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        lines.join("\n      ")
    };
    let block = config("CLUSTER", &user).replace(
        "{CLUSTER}",
        &format!(
            "\n    server: 'https://127.0.0.1:{}'\n    certificate-authority-data: |\n      {}",
            plain.port,
            lines(&plain.ca)
        ),
    );
    vec![
        shown("ca-data", "plain"),
        shown("rsa", "rsa"),
        shown("p384", "p384"),
        shown("p521", "p521"),
        shown("ed25519", "ed25519"),
        shown("chain", "chain"),
        shown("self-signed", "self-signed"),
        shown("self-signed-leaf", "self-signed-leaf"),
        shown("ca-leaf", "ca-leaf"),
        shown("ca-leaf-chain", "ca-leaf-chain"),
        shown("intermediate-trusted", "below"),
        trusted("leaf-pinned", "plain", &data(&plain.leaf)),
        trusted("leaf-pinned-p521", "p521", &data(&world.front("p521").leaf)),
        trusted("leaf-pinned-beside-others", "plain", &data(&format!("{}{}", world.front("rsa").ca, plain.leaf))),
        trusted("leaf-pinned-of-a-name", "other-address", &data(&world.front("other-address").leaf))
            .refused("192.0.2.1|`clusters[name=k].cluster.tls-server-name`"),
        shown("name-other", "other-address").refused("192.0.2.1|`clusters[name=k].cluster.tls-server-name`"),
        shown("leaf-expired", "expired").refused("expired"),
        shown("self-signed-expired", "self-signed-expired").refused("expired"),
        shown("ca-leaf-expired", "ca-leaf-expired").refused("expired"),
        shown("ca-expired", "expired-ca").refused("expired|`clusters[name=k].cluster.certificate-authority-data`"),
        shown("leaf-of-clients", "client-only").refused("`clusters[name=k].cluster.server`|server"),
        trusted("ca-other", "plain", &data(&world.front("rsa").ca))
            .refused("`clusters[name=k].cluster.certificate-authority-data`"),
        trusted("ca-of-other-ca-leaf", "ca-leaf", &data(&plain.ca))
            .refused("`clusters[name=k].cluster.certificate-authority-data`"),
        trusted("ca-left-out", "plain", "").refused("`clusters[name=k].cluster.certificate-authority-data`"),
        trusted("ca-of-the-system", "plain", "").file("roots.pem", &plain.ca).env("SSL_CERT_FILE", "roots.pem"),
        trusted("ca-of-the-system-folder", "plain", "")
            .file("roots/a.pem", &plain.ca)
            .env("SSL_CERT_DIR", "roots")
            .env("SSL_CERT_FILE", "none"),
        trusted("leaf-of-the-system", "self-signed", "")
            .file("roots.pem", &world.front("self-signed").leaf)
            .env("SSL_CERT_FILE", "roots.pem"),
        trusted("ca-empty", "plain", "certificate-authority-data: '', certificate-authority: ''")
            .file("roots.pem", &plain.ca)
            .env("SSL_CERT_FILE", "roots.pem"),
        trusted("ca-data-no-system", "plain", &data(&plain.ca))
            .env("SSL_CERT_FILE", "none")
            .env("SSL_CERT_DIR", "none"),
        Case::of("ca-data-lines", block),
        trusted("ca-data-more-text", "plain", &data(&format!("Subject: CN=ca\n\n{}\r\n# end\n", plain.ca))),
        trusted("ca-data-crlf", "plain", &data(&plain.ca.replace('\n', "\r\n"))),
        trusted("ca-data-several", "plain", &data(&format!("{}{}", world.front("rsa").ca, plain.ca))),
        trusted("ca-data-with-key", "plain", &data(&format!("{}{}", world.key, plain.ca))),
        trusted(
            "ca-data-beside-broken",
            "plain",
            &data(&format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{}", plain.ca)),
        ),
        trusted("ca-data-placeholder", "plain", "certificate-authority-data: DATA+OMITTED")
            .refused("`clusters[name=k].cluster.certificate-authority-data`|--raw"),
        trusted("ca-data-no-base64", "plain", "certificate-authority-data: '%%%'")
            .refused("`clusters[name=k].cluster.certificate-authority-data`|base64"),
        trusted("ca-data-no-certificate", "plain", &data("nothing"))
            .refused("`clusters[name=k].cluster.certificate-authority-data`|PEM"),
        trusted("ca-file", "plain", "certificate-authority: ca.crt").file("ca.crt", &plain.ca),
        trusted("ca-file-empty", "plain", "certificate-authority: ca.crt")
            .file("ca.crt", "")
            .file("roots.pem", &plain.ca)
            .env("SSL_CERT_FILE", "roots.pem"),
        trusted("ca-file-missing", "plain", "certificate-authority: ca.crt")
            .refused("`clusters[name=k].cluster.certificate-authority`|ca.crt|it does not exist"),
        trusted("ca-file-no-certificate", "plain", "certificate-authority: ca.crt")
            .file("ca.crt", "nothing")
            .refused("`clusters[name=k].cluster.certificate-authority`|PEM"),
        trusted("ca-file-and-data", "plain", &format!("certificate-authority: ca.crt, {}", data(&plain.ca)))
            .file("ca.crt", "nothing")
            .refused("`clusters[name=k].cluster.certificate-authority-data`|`certificate-authority`"),
    ]
}
