//! Who asks: users of all kinds, and log-in plugins.

use super::{Case, World, at, config, encoded, token};

pub(super) fn cases(world: &World) -> Vec<Case> {
    let good = at(world, "plain");
    let token = token(world);
    let user = |name, user: &str| Case::of(name, config(&good, user));
    let (certificate, key) = (encoded(&world.certificate), encoded(&world.key));
    let by_certificate = format!("client-certificate-data: {certificate}, client-key-data: {key}");
    let direct = format!("server: '{}', certificate-authority-data: {}", world.server, encoded(&world.server_ca));
    let own = |kind: &'static rcgen::SignatureAlgorithm| {
        let key = rcgen::KeyPair::generate_for(kind).unwrap();
        let certificate = rcgen::CertificateParams::default().self_signed(&key).unwrap().pem();
        (certificate, key.serialize_pem())
    };
    let pair = |(certificate, key): (String, String)| {
        format!("client-certificate-data: {}, client-key-data: {}", encoded(&certificate), encoded(&key))
    };
    let (other, other_key) = own(&rcgen::PKCS_ECDSA_P256_SHA256);
    // As `openssl ecparam -genkey` writes it.
    let parameters = "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n";
    vec![
        user("nobody", "").more(),
        user("token", &token),
        user("token-wrong", "token: s3cret"),
        user("token-empty", "token: ''").more(),
        user("token-null", "token: null").more(),
        user("token-placeholder", "token: REDACTED").less("`users[name=u].user.token`|--raw"),
        user("token-with-line-break", "token: \"s3cret\\n\"").refused("`users[name=u].user.token`"),
        user("token-file", "tokenFile: token").file("token", &world.token),
        user("token-file-line", "tokenFile: token").file("token", &format!("{}\n", world.token)),
        user("token-file-spaces", "tokenFile: token").file("token", &format!(" {}\r\n\n", world.token)),
        user("token-file-empty", "tokenFile: token").file("token", "").refused("`users[name=u].user.tokenFile`"),
        user("token-file-missing", "tokenFile: token").refused("`users[name=u].user.tokenFile`|token|it does not exist"),
        user("token-and-file", "tokenFile: token, token: s3cret").file("token", &world.token),
        user("token-and-file-missing", &format!("tokenFile: token, {token}")),
        user("basic", "username: me, password: s3cret"),
        user("basic-no-password", "username: me"),
        user("basic-no-name", "password: s3cret").more(),
        user("basic-and-token", &format!("username: me, password: s3cret, {token}")).refused("`users[name=u].user.token`|username"),
        Case::of("certificate", config(&direct, &by_certificate)),
        user("certificate-shown", &by_certificate),
        user("certificate-and-token", &format!("{by_certificate}, {token}")),
        user("certificate-rsa", &pair(own(&rcgen::PKCS_RSA_SHA256))),
        user("certificate-p384", &pair(own(&rcgen::PKCS_ECDSA_P384_SHA384))),
        user("certificate-p521", &pair(own(&rcgen::PKCS_ECDSA_P521_SHA512))),
        user("certificate-ed25519", &pair(own(&rcgen::PKCS_ED25519))),
        user("certificate-parameters", &pair((other.clone(), format!("{parameters}{other_key}")))),
        user("certificate-files", "client-certificate: c.crt, client-key: c.key").file("c.crt", &world.certificate).file("c.key", &world.key),
        user("certificate-one-file", "client-certificate: c.pem, client-key: c.pem").file("c.pem", &format!("{}{}", world.key, world.certificate)),
        user("certificate-file-missing", "client-certificate: c.crt, client-key: c.key").file("c.key", &world.key).refused("`users[name=u].user.client-certificate`|c.crt"),
        user("certificate-without-key", &format!("client-certificate-data: {certificate}")).refused("`users[name=u].user.client-key-data`"),
        user("key-without-certificate", &format!("client-key-data: {key}")).more(),
        user("key-of-another", &format!("client-certificate-data: {certificate}, client-key-data: {}", encoded(&other_key))).refused("`users[name=u].user.client-key-data`"),
        user("certificate-no-pem", &format!("client-certificate-data: {}, client-key-data: {key}", encoded("nothing"))).refused("`users[name=u].user.client-certificate-data`"),
        user("key-no-pem", &format!("client-certificate-data: {certificate}, client-key-data: {}", encoded("s3cret"))).refused("`users[name=u].user.client-key-data`"),
        user("key-no-base64", &format!("client-certificate-data: {certificate}, client-key-data: '%s3cret'")).refused("`users[name=u].user.client-key-data`|base64"),
        user("certificate-empty", &format!("client-certificate-data: '', client-key-data: '', {token}")),
        user("certificate-file-and-data", &format!("client-certificate: c.crt, {by_certificate}")).file("c.crt", "x").refused("`users[name=u].user.client-certificate-data`|`client-certificate`"),
        user("as", &format!("{token}, as: somebody")),
        user("as-empty", &format!("{token}, as: '', as-groups: []")),
        user("as-uid", &format!("{token}, as: somebody, as-uid: '7'")),
        user("as-uid-alone", &format!("{token}, as-uid: '7'")).refused("`users[name=u].user.as-uid`"),
        user("as-groups", &format!("{token}, as: somebody, as-groups: ['system:masters', b]")),
        user("as-groups-alone", &format!("{token}, as-groups: [a]")).refused("`users[name=u].user.as-groups`"),
        user("as-user-extra", &format!("{token}, as: somebody, as-user-extra: {{scopes: [a, b], 'example.com/x': [c]}}")),
        user("as-user-extra-alone", &format!("{token}, as-user-extra: {{a: [b]}}")).refused("`users[name=u].user.as-user-extra`"),
        user("as-line-break", &format!("{token}, as: \"a\\nb\"")).refused("`users[name=u].user.as`"),
        user("provider-oidc", &format!("auth-provider: {{name: oidc, config: {{idp-issuer-url: 'https://127.0.0.1:1', client-id: a, id-token: {}}}}}", world.token)),
        user("provider-oidc-expired", "auth-provider: {name: oidc, config: {idp-issuer-url: 'https://127.0.0.1:1', client-id: a}}").refused("`users[name=u].user.auth-provider"),
        user("provider-gcp", "auth-provider: {name: gcp, config: {access-token: s3cret}}").refused("`users[name=u].user.auth-provider|gcp|gke-gcloud-auth-plugin"),
        user("provider-azure", "auth-provider: {name: azure}").refused("`users[name=u].user.auth-provider|azure|kubelogin"),
        user("provider-other", "auth-provider: {name: other}").refused("`users[name=u].user.auth-provider|other"),
        user("provider-and-exec", &format!("auth-provider: {{name: oidc, config: {{id-token: {}}}}}, exec: {{command: a, apiVersion: client.authentication.k8s.io/v1}}", world.token)).refused("`users[name=u].user.auth-provider"),
        user("user-extensions", &format!("{token}, extensions: [{{name: a, extension: 1}}]")),
        Case::of("user-null", config(&good, "").replace("user: {}", "user: null")).more(),
    ]
}

/// Log-in plugins.
pub(super) fn of_plugins(world: &World) -> Vec<Case> {
    let good = at(world, "plain");
    let version = "client.authentication.k8s.io/v1";
    let status = |version: &str, status: &str| {
        format!("{{\"apiVersion\": \"{version}\", \"kind\": \"ExecCredential\", \"status\": {status}}}")
    };
    let prints = |text: &str| format!("#!/bin/sh\ncat <<'END'\n{text}\nEND\n");
    let credential = status(version, &format!("{{\"token\": \"{}\"}}", world.token));
    let fields = |more: &str| format!("exec: {{command: sso, apiVersion: {version}, interactiveMode: Never{more}}}");
    let exec = |name, exec: &str| Case::of(name, config(&good, exec)).file("bin/sso", &prints(&credential));
    let says = |name, script: &str| Case::of(name, config(&good, &fields(""))).file("bin/sso", script);
    // A plugin whose answer is good only if it was called as it should be.
    let checks = |name, exec: &str, test: &str| {
        Case::of(name, config(&good, exec))
            .file("bin/sso", &format!("#!/bin/sh\n{test} || exit 7\ncat <<'END'\n{credential}\nEND\n"))
    };
    let beta = "client.authentication.k8s.io/v1beta1";
    let mode = |mode: &str| fields("").replace("Never", mode);
    let json = |text: &str| serde_json::to_string(text).unwrap();
    vec![
        exec("exec", &fields("")),
        exec("exec-if-available", &mode("IfAvailable")),
        exec("exec-always", &mode("Always")).refused("`users[name=u].user.exec.interactiveMode`"),
        exec("exec-other-mode", &mode("Sometimes")).refused("interactiveMode"),
        exec("exec-no-mode", &fields("").replace(", interactiveMode: Never", ""))
            .refused("`users[name=u].user.exec.interactiveMode`"),
        Case::of("exec-beta-no-mode", config(&good, &format!("exec: {{command: sso, apiVersion: {beta}}}")))
            .file("bin/sso", &prints(&status(beta, &format!("{{\"token\": \"{}\"}}", world.token)))),
        exec("exec-alpha", &fields("").replace("/v1,", "/v1alpha1,")).refused("`users[name=u].user.exec.apiVersion`"),
        exec("exec-no-version", &fields("").replace(&format!("apiVersion: {version}, "), ""))
            .refused("`users[name=u].user.exec.apiVersion`"),
        exec("exec-no-command", &fields("").replace("command: sso, ", "")).refused("`users[name=u].user.exec.command`"),
        exec("exec-empty-command", &fields("").replace("command: sso, ", "command: '', "))
            .refused("`users[name=u].user.exec.command`"),
        exec("exec-relative", &fields("").replace("command: sso", "command: ./bin/sso")),
        exec(
            "exec-missing",
            &fields(", installHint: 'Get it from example.com'").replace("command: sso", "command: not-there"),
        )
        .refused("not-there|Get it from example.com"),
        checks("exec-args", &fields(", args: [get, 'a b', '']"), "[ $# = 3 ] && [ \"$2\" = 'a b' ]"),
        checks(
            "exec-env",
            &fields(", env: [{name: WHO, value: 'a b'}, {name: NONE, value: ''}]"),
            "[ \"$WHO\" = 'a b' ] && [ -n \"${NONE+set}\" ] && [ -n \"$HOME\" ]",
        ),
        exec("exec-env-no-name", &fields(", env: [{value: a}]")).refused("`users[name=u].user.exec.env`"),
        checks("exec-env-no-value", &fields(", env: [{name: WHO}]"), "[ -n \"${WHO+set}\" ]"),
        checks(
            "exec-info",
            &fields(", provideClusterInfo: true"),
            "echo \"$KUBERNETES_EXEC_INFO\" | grep -q '\"server\":\"https://127.0.0.1:' && echo \"$KUBERNETES_EXEC_INFO\" | grep -q '\"interactive\":false'",
        ),
        checks("exec-no-info", &fields(""), "! echo \"$KUBERNETES_EXEC_INFO\" | grep -q 'server'"),
        checks(
            "exec-if-available-info",
            &mode("IfAvailable"),
            "echo \"$KUBERNETES_EXEC_INFO\" | grep -q '\"interactive\":false'",
        ),
        says("exec-fails", "#!/bin/sh\necho '{\"token\": \"s3cret\"}'\necho 'the session is over' >&2\nexit 255\n")
            .refused("`sso`|the session is over"),
        says("exec-silent", "#!/bin/sh\n").refused("`sso`|ExecCredential"),
        says("exec-no-json", &prints("s3cret")).refused("`sso`|ExecCredential"),
        says("exec-no-status", &prints(&format!("{{\"apiVersion\": \"{version}\", \"kind\": \"ExecCredential\"}}")))
            .refused("`sso`|ExecCredential"),
        says("exec-empty-status", &prints(&status(version, "{}"))).refused("`sso`|ExecCredential"),
        says("exec-other-version", &prints(&status(beta, "{\"token\": \"s3cret\"}"))).refused("`sso`|v1beta1"),
        says(
            "exec-certificate",
            &prints(&status(
                version,
                &format!(
                    "{{\"clientCertificateData\": {}, \"clientKeyData\": {}}}",
                    json(&world.certificate),
                    json(&world.key)
                ),
            )),
        ),
        says(
            "exec-certificate-alone",
            &prints(&status(version, &format!("{{\"clientCertificateData\": {}}}", json(&world.certificate)))),
        )
        .refused("`sso`"),
        says(
            "exec-certificate-and-token",
            &prints(&status(
                version,
                &format!(
                    "{{\"token\": \"{}\", \"clientCertificateData\": {}, \"clientKeyData\": {}}}",
                    world.token,
                    json(&world.certificate),
                    json(&world.key)
                ),
            )),
        ),
        says(
            "exec-expires",
            &prints(&status(
                version,
                &format!("{{\"token\": \"{}\", \"expirationTimestamp\": \"2099-01-01T00:00:00Z\"}}", world.token),
            )),
        ),
        exec(
            "exec-and-token",
            &format!("{}, {}", fields("").replace("command: sso", "command: 'false'"), token(world)),
        ),
        exec(
            "exec-and-certificate",
            &format!(
                "{}, client-certificate-data: {}, client-key-data: {}",
                fields(""),
                encoded(&world.certificate),
                encoded(&world.key)
            ),
        ),
    ]
}
