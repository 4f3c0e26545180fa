//! `template control-plane`: manifests that can be applied, with keys that are made once.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::Sandbox;
use crate::install::{documents, find};

const DECIDED: [&str; 7] =
    ["template", "cp", "demo", "--set", "exposure.type=NodePort", "--set", "exposure.host=192.0.2.10"];

fn template(sandbox: &Sandbox, more: &[&str]) -> crate::Ran {
    sandbox.run(&[&DECIDED[..], &["--set", "exposure.port=32222"], more].concat())
}

#[test]
fn manifests_are_whole_and_the_keys_are_made_once_and_kept() {
    let sandbox = Sandbox::new();
    let first = template(&sandbox, &[]);
    let objects = documents(first.succeeds());
    assert!(first.stderr.contains("private keys"), "{}", first.stderr);
    assert_eq!(find(&objects, "Service", "apiserver")["spec"]["ports"][0]["nodePort"], 32222);
    assert_eq!(template(&sandbox, &[]).succeeds(), first.stdout);
    let keys = sandbox.path().join(".fleet/demo/pki");
    assert_eq!(fs::metadata(&keys).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(keys.join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let kubeconfig = fs::read_to_string(sandbox.path().join(".fleet/demo/fleet-kubeconfig")).unwrap();
    assert!(kubeconfig.contains("https://192.0.2.10:32222"), "the kubeconfig names the endpoint");
    let list: serde_json::Value = serde_json::from_str(template(&sandbox, &["-o", "json"]).succeeds()).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), objects.len());
}

#[test]
fn an_undecided_exposure_is_a_usage_error_with_the_flags_that_decide() {
    let sandbox = Sandbox::new();
    sandbox.run(&["template", "cp", "demo"]).fails(2, &["`exposure.type` is required", "--set exposure.type=NodePort"]);
    sandbox.run(&DECIDED).fails(2, &["`exposure.port` is required"]);
    assert!(!sandbox.path().join(".fleet").exists(), "nothing is written");
}

#[test]
fn the_patch_that_is_asked_for_is_the_tag_of_the_services_own_images_only() {
    let sandbox = Sandbox::new();
    let images = |more: &[&str]| -> Vec<String> {
        let ran = template(&sandbox, more);
        let containers = documents(ran.succeeds()).into_iter().filter_map(|object| {
            let image = object["spec"]["template"]["spec"]["containers"][0]["image"].as_str()?;
            Some(image.rsplit('/').next()?.to_owned())
        });
        containers.filter(|image| image.starts_with("etcd:") || image.starts_with("fleet-scheduler")).collect()
    };
    let etcd = || "etcd:3.5.35-0".to_owned();
    assert_eq!(images(&["--version", "v0.9.3"]), [etcd(), "fleet-scheduler:v0.9.3".to_owned()]);
    assert_eq!(images(&["--version", "v0.9"]), [etcd(), "fleet-scheduler:v0.9.0".to_owned()]);
    for more in [["--image-tag", "v0.9.1"], ["--set", "scheduler.image.tag=v0.9.1"]] {
        let images = images(&[&["--version", "v0.9.3"][..], &more].concat());
        assert_eq!(images, [etcd(), "fleet-scheduler:v0.9.1".to_owned()]);
    }
    let agent = sandbox.run(&["template", "agent", "west", "--version", "v0.9.3"]);
    assert!(agent.succeeds().contains("fleetscheduler/fleet-agent:v0.9.3"), "{agent:?}");
    let listed = sandbox.run(&["show", "images", "--version", "v0.9.3", "-o", "name"]);
    assert!(listed.succeeds().contains("fleet-agent:v0.9.3\n") && listed.stdout.contains("fleet-scheduler:v0.9.3\n"));
    let values = sandbox.run(&["show", "values", "--version", "v0.9.3"]);
    assert!(values.succeeds().contains("tag: v0.9.3"), "{values:?}");
}

#[test]
fn a_digest_as_tag_is_joined_to_the_repository_as_a_digest() {
    let sandbox = Sandbox::new();
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let plane = |tag: &str| template(&sandbox, &["--version", "v1.1", "--image-tag", tag]);
    assert!(plane(&digest).succeeds().contains(&format!("image: fleetscheduler/fleet-scheduler@{digest}\n")));
    let both = format!("v1.1.0@{digest}");
    assert!(plane(&both).succeeds().contains(&format!("fleetscheduler/fleet-scheduler:{both}\n")));
    let agent = |more: &[&str]| {
        let args = [&["template", "agent", "west", "--version", "v1.1", "--image-tag", &digest][..], more].concat();
        sandbox.run(&args).succeeds().to_owned()
    };
    assert!(agent(&[]).contains(&format!("image: fleetscheduler/fleet-agent@{digest}\n")));
    let mirrored = agent(&["--image-registry", "mirror.example:5000"]);
    assert!(mirrored.contains(&format!("image: mirror.example:5000/fleetscheduler/fleet-agent@{digest}\n")));
}

#[test]
fn a_kubernetes_version_outside_the_row_is_refused() {
    let sandbox = Sandbox::new();
    template(&sandbox, &["--kube-version", "v1.25.4-gke.1"]).succeeds();
    template(&sandbox, &["--kube-version", "1.31"]).fails(3, &["does not support Kubernetes v1.31", "versions"]);
}

#[test]
fn a_damaged_key_is_named_and_nothing_is_made_anew() {
    let sandbox = Sandbox::new();
    template(&sandbox, &[]).succeeds();
    let key = sandbox.path().join(".fleet/demo/pki/ca.key");
    let good = fs::read_to_string(&key).unwrap();
    fs::write(&key, "-----BEGIN PRIVATE KEY-----\nbroken\n-----END PRIVATE KEY-----\n").unwrap();
    template(&sandbox, &[]).fails(1, &["ca.key"]);
    fs::write(&key, good).unwrap();
    template(&sandbox, &[]).succeeds();
}

#[test]
fn a_kubeconfig_that_does_not_come_from_the_keys_here_is_not_overwritten() {
    let installed = || {
        let elsewhere = Sandbox::new();
        template(&elsewhere, &[]).succeeds();
        fs::read(elsewhere.path().join(".fleet/demo/fleet-kubeconfig")).unwrap()
    };
    // What is damaged tells nothing about its keys, and nothing is to be deleted for it.
    for damaged in [&b"clusters: [\n"[..], b"\xff", b""] {
        let sandbox = Sandbox::new();
        let folder = sandbox.path().join(".fleet/demo");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("fleet-kubeconfig"), damaged).unwrap();
        let ran = template(&sandbox, &[]);
        ran.fails(1, &["a local file cannot be used", "/.fleet/demo/fleet-kubeconfig`", "`fleetctl kubeconfig demo`"]);
        assert!(!ran.stderr.contains("delete-data"), "{ran:?}");
        assert_eq!(fs::read(folder.join("fleet-kubeconfig")).unwrap(), damaged);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no keys are made");
    }
    {
        let kubeconfig = installed();
        let sandbox = Sandbox::new();
        let folder = sandbox.path().join(".fleet/demo");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("fleet-kubeconfig"), &kubeconfig).unwrap();
        let ran = template(&sandbox, &[]);
        ran.fails(
            6,
            &[
                "installed from this machine with other keys",
                "another name",
                "--dry-run --version v0.6.1`",
                "--delete-data`",
                "away",
            ],
        );
        assert_eq!(fs::read(folder.join("fleet-kubeconfig")).unwrap(), kubeconfig);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no keys are made");
        let json = template(&sandbox, &["-o", "json"]);
        assert!(json.code == 6 && json.stderr.contains("\"OtherKeys\""), "{json:?}");
        sandbox.run(&["template", "cp", "demo", "--explain", "service/apiserver#spec.type"]).succeeds();
    }
    // Nor where there are keys, which are others.
    let (sandbox, other) = (Sandbox::new(), installed());
    template(&sandbox, &[]).succeeds();
    let (keys, file) = (sandbox.path().join(".fleet/demo/pki"), sandbox.path().join(".fleet/demo/fleet-kubeconfig"));
    let admin = fs::read(keys.join("admin.kubeconfig")).unwrap();
    fs::write(&file, &other).unwrap();
    template(&sandbox, &["--set", "exposure.host=192.0.2.11"]).fails(6, &["other keys", ".fleet/demo/pki"]);
    assert_eq!(fs::read(&file).unwrap(), other);
    assert_eq!(fs::read(keys.join("admin.kubeconfig")).unwrap(), admin);
}

#[test]
fn another_address_has_another_kubeconfig_by_the_same_keys() {
    let sandbox = Sandbox::new();
    let read = |name: &str| fs::read_to_string(sandbox.path().join(".fleet/demo").join(name)).unwrap();
    template(&sandbox, &[]).succeeds();
    let authority = read("pki/ca.crt");
    for host in ["192.0.2.11", "192.0.2.12"] {
        template(&sandbox, &["--set", &format!("exposure.host={host}")]).succeeds();
        assert!(read("fleet-kubeconfig").contains(&format!("https://{host}:32222")), "{host}");
        assert_eq!(read("pki/ca.crt"), authority);
    }
    // A part of the keys is a damaged set, and it is told which part is missing.
    fs::remove_file(sandbox.path().join(".fleet/demo/pki/ca.crt")).unwrap();
    template(&sandbox, &[]).fails(1, &["ca.crt"]);
    assert!(read("fleet-kubeconfig").contains("https://192.0.2.12:32222"));
}

#[test]
fn the_name_may_come_from_the_values_also_from_standard_input() {
    let sandbox = Sandbox::new();
    let args = ["install", "cp", "--dry-run", "--values", "-"];
    let ran = crate::Ran::of(sandbox.command().args(args).write_stdin("name: from-values\n").output().unwrap());
    let objects = documents(ran.succeeds());
    let label = &find(&objects, "Namespace", "fleet")["metadata"]["labels"]["app.kubernetes.io/instance"];
    assert_eq!(label, "from-values");
    sandbox.run(&["template", "cp"]).fails(2, &["no name", "install control-plane NAME", "`name:` in the values"]);
}

#[test]
fn objects_are_chosen_by_name_template_and_kind() {
    let sandbox = Sandbox::new();
    let ids = |more: &[&str]| -> Vec<String> {
        let ran = template(&sandbox, more);
        documents(ran.succeeds())
            .iter()
            .map(|o| format!("{}/{}", o["kind"].as_str().unwrap(), o["metadata"]["name"].as_str().unwrap()))
            .collect()
    };
    assert_eq!(ids(&["--show-only", "statefulset/etcd"]), ["StatefulSet/etcd"]);
    assert_eq!(
        ids(&["-s", "templates/namespace.yaml", "-s", "StatefulSet/etcd"]),
        ["Namespace/fleet", "StatefulSet/etcd"]
    );
    assert!(ids(&["-s", "bootstrap/crd-clusters.yaml"])[0].starts_with("CustomResourceDefinition/clusters."));
    let secrets = ids(&["--include-kind", "secrets"]);
    assert!(secrets.len() > 3 && secrets.iter().all(|id| id.starts_with("Secret/")), "{secrets:?}");
    let others = ids(&["--exclude-kind", "Secret,ConfigMap"]);
    assert!(!others.is_empty() && !others.iter().any(|id| id.starts_with("Secret/") || id.starts_with("ConfigMap/")));
    assert_eq!(secrets.len() + others.len() + ids(&["--include-kind", "configmap"]).len(), ids(&[]).len());
    template(&sandbox, &["-s", "statefulset/etc"])
        .fails(2, &["`statefulset/etc`", "statefulset/etcd", "templates/namespace.yaml"]);
    template(&sandbox, &["--exclude-kind", "Secrt"]).fails(2, &["`Secrt` is not a kind"]);
}

#[test]
fn an_output_without_secrets_is_not_said_to_hold_keys() {
    let sandbox = Sandbox::new();
    let holds = |more: &[&str]| {
        let ran = template(&sandbox, more);
        ran.succeeds();
        let holds = ran.stderr.contains("output contains private keys");
        assert_eq!(ran.stderr.contains(".fleet/demo/fleet-kubeconfig"), holds, "{ran:?}");
        holds
    };
    assert!(holds(&[]) && holds(&["--include-kind", "secret"]) && holds(&["--output-dir", "all"]));
    assert!(
        !holds(&["--print-digest"]) && !holds(&["-s", "service/apiserver"]) && !holds(&["--exclude-kind", "secret"])
    );
}

#[test]
fn a_folder_gets_a_file_for_each_object_in_the_order_of_the_stages() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("out");
    let ran = template(&sandbox, &["--output-dir", folder.to_str().unwrap()]);
    let files: Vec<&str> = ran.succeeds().lines().collect();
    let stages: Vec<&str> = files.iter().map(|file| &file.rsplit_once('/').unwrap().1[..2]).collect();
    assert!(stages.is_sorted() && stages.last() > stages.first(), "{stages:?}");
    let whole = documents(template(&sandbox, &[]).succeeds());
    let read: Vec<_> = files.iter().flat_map(|file| documents(&fs::read_to_string(file).unwrap())).collect();
    assert_eq!(read, whole);
    for (file, object) in files.iter().zip(&whole) {
        let mode = fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode == 0o600, object["kind"] == "Secret", "{file} {mode:o}");
    }
    assert_eq!(
        template(&sandbox, &["--output-dir", folder.to_str().unwrap()]).succeeds(),
        ran.stdout,
        "again into its own"
    );
}

#[test]
fn the_digest_is_that_of_the_objects_and_of_nothing_else() {
    let sandbox = Sandbox::new();
    let digest = |more: &[&str]| template(&sandbox, &[&["--print-digest"], more].concat()).succeeds().trim().to_owned();
    let first = digest(&[]);
    assert!(first.strip_prefix("sha256:").is_some_and(|hex| hex.len() == 64), "{first}");
    assert_eq!(digest(&["-o", "json"]), first);
    assert_ne!(digest(&["--set", "apiserver.extraArgs={--v=4}"]), first);
    assert_ne!(digest(&["--exclude-kind", "Secret"]), first);
}

#[test]
fn a_field_is_explained_down_to_the_values_that_decide_it() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("my.yaml", "etcd:\n  image:\n    tag: 3.5.99\n");
    let field = "statefulset/etcd#spec.template.spec.containers[0].image";
    let args = ["template", "cp", "demo", "--values", &file, "--image-registry", "mirror.example", "--explain", field];
    let ran = sandbox.run(&args);
    for part in [
        "= mirror.example/registry.k8s.io/etcd:3.5.99",
        "charts/control-plane/v0.6/templates/",
        "values.etcd.image.tag from",
        "my.yaml:3:10: tag: 3.5.99",
        "instead of charts/versions.yaml:",
        "values.imageRegistry from --image-registry:1:1: mirror.example",
    ] {
        assert!(ran.succeeds().contains(part), "{part}\n{}", ran.stdout);
    }
    assert!(!sandbox.path().join(".fleet").exists(), "asking makes no keys");
    let explain = |field: &str| sandbox.run(&["template", "cp", "demo", "--explain", field]);
    explain("statefulset/etcd").fails(2, &["write `kind/name#path`"]);
    explain("statefulset/etc#spec").fails(2, &["the chart does not render `statefulset/etc`"]);
    explain("statefulset/etcd#spec.replica").fails(2, &["no `spec.replica`", "`replicas`"]);
    // What was decided before anything is rendered leads to its values too.
    let exposed = explain("service/apiserver#spec.type");
    for part in [
        "facts.exposure.type, which depends on the cluster and on:",
        "values.exposure.type from charts/control-plane/v0.6/values.yaml:",
    ] {
        assert!(exposed.succeeds().contains(part), "{part}\n{}", exposed.stdout);
    }
    let secret = explain("secret/fleet-pki#data");
    assert!(secret.succeeds().contains("********"), "{}", secret.stdout);
}

#[test]
fn manifests_into_a_reader_that_goes_away_are_no_error() {
    let sandbox = Sandbox::new();
    let binary = assert_cmd::cargo::cargo_bin!("fleetctl").display();
    let script = format!("'{binary}' {} --set exposure.port=32222 --quiet | head -n 1", DECIDED.join(" "));
    let mut command = std::process::Command::new("bash");
    let ran = command.args(["-o", "pipefail", "-c", &script]).env("HOME", sandbox.path()).output().unwrap();
    assert!(ran.status.success() && ran.stdout == b"---\n" && ran.stderr.is_empty(), "{ran:?}");
}

#[test]
fn under_o_json_an_error_is_json_with_its_codes_and_places() {
    let sandbox = Sandbox::new();
    let file = sandbox.file("my.yaml", "etcd:\n  replica: 3\n");
    let ran = template(&sandbox, &["--values", &file, "-o", "json"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    let error: serde_json::Value = serde_json::from_str(&ran.stderr).unwrap();
    assert_eq!(error["error"]["reason"], "InvalidValues");
    assert_eq!(error["error"]["exitCode"], 2);
    let problem = &error["error"]["problems"][0];
    assert_eq!((&problem["code"], &problem["place"]["line"]), (&"unknown-key".into(), &2.into()), "{problem}");
}

#[test]
fn help_says_which_values_win() {
    let sandbox = Sandbox::new();
    for args in [&["install", "cp"][..], &["template", "cp"], &["lint"], &["show", "images"]] {
        let help = sandbox.run(&[args, &["--help"]].concat());
        let text = help.succeeds();
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        let table = &text[at("the last one wins")..];
        let order: Vec<usize> = ["defaults of the chart", "--values FILE", "--set, --set-string", "dedicated flags"]
            .map(|part| table.find(part).unwrap())
            .to_vec();
        assert!(order.is_sorted(), "{text}");
    }
}

#[test]
fn keys_are_written_through_no_link_into_no_open_file_and_into_no_open_folder() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path().join("out");
    let into = |folder: &std::path::Path| template(&sandbox, &["--output-dir", folder.to_str().unwrap()]);
    into(&folder).succeeds();
    assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700, "a new folder is its owner's alone");
    let secret = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let secret = secret.into_iter().find(|path| path.to_string_lossy().ends_with("secret-fleet-pki.yaml")).unwrap();

    // What others can read is theirs no longer, not even where they have it open.
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o666)).unwrap();
    fs::write(&secret, "").unwrap();
    let open = fs::File::open(&secret).unwrap();
    into(&folder).succeeds();
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::io::read_to_string(open).unwrap(), "");

    let theirs = sandbox.file("theirs", "theirs");
    fs::remove_file(&secret).unwrap();
    std::os::unix::fs::symlink(&theirs, &secret).unwrap();
    into(&folder).fails(6, &["a symbolic link", "secret-fleet-pki.yaml", "--exclude-kind Secret"]);
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "theirs");

    let open = sandbox.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    into(&open).fails(6, &["a folder that other users can write to", "does not exist yet"]);
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
    template(&sandbox, &["--output-dir", open.to_str().unwrap(), "--exclude-kind", "Secret"]).succeeds();

    // Nor is an index read that is no small file: a device and a pipe have no end.
    let index = open.join(".fleetctl-index");
    let in_its_place: [(&str, &dyn Fn()); 3] = [
        ("a symbolic link", &|| std::os::unix::fs::symlink("/dev/zero", &index).unwrap()),
        ("a named pipe", &|| assert!(std::process::Command::new("mkfifo").arg(&index).status().unwrap().success())),
        ("a very large file", &|| fs::File::create(&index).unwrap().set_len(1 << 40).unwrap()),
    ];
    for (found, put) in in_its_place {
        fs::remove_file(&index).unwrap();
        put();
        template(&sandbox, &["--output-dir", open.to_str().unwrap(), "--exclude-kind", "Secret"])
            .fails(6, &[".fleetctl-index` is", found]);
    }
}

#[test]
fn manifests_for_gitops_hold_no_key_and_say_what_stays() {
    let sandbox = Sandbox::new();
    // Whoever forgets where keys come from gets none, and makes none.
    for program in ["argocd", "flux"] {
        template(&sandbox, &["--for", program]).fails(2, &["private keys", "pki.source=InCluster", "--without-keys"]);
        template(&sandbox, &["--for", program, "-s", "secret/fleet-pki"]).fails(2, &["private keys"]);
    }
    assert!(!sandbox.path().join(".fleet").exists(), "nothing is written");

    let in_cluster = ["--set", "pki.source=InCluster"];
    let rendered = |more: &[&str]| documents(template(&sandbox, &[&in_cluster[..], more].concat()).succeeds());
    let annotation = |object: &serde_json::Value, key: &str| {
        object["metadata"]["annotations"][key].as_str().map(str::to_owned).unwrap_or_default()
    };
    let plain = rendered(&[]);
    let argocd = rendered(&["--for", "argocd"]);
    assert_eq!(argocd, rendered(&["--for", "argocd"]), "the same at every run");
    let waves: Vec<u8> =
        argocd.iter().map(|object| annotation(object, "argocd.argoproj.io/sync-wave").parse().unwrap()).collect();
    assert!(waves.is_sorted() && waves.first() < waves.last(), "{waves:?}");
    let options = "argocd.argoproj.io/sync-options";
    assert!(argocd.iter().all(|object| annotation(object, options).starts_with("ServerSideApply=true")));
    let kept: Vec<&str> = argocd
        .iter()
        .filter(|object| annotation(object, options).ends_with(",Prune=false,Delete=false"))
        .filter_map(|object| object["kind"].as_str())
        .collect();
    assert_eq!(kept, ["Namespace"]);
    // Nor do the claims go that the StatefulSet makes.
    let claim = &find(&argocd, "StatefulSet", "etcd")["spec"]["volumeClaimTemplates"][0];
    assert_eq!(annotation(claim, options), "Prune=false,Delete=false");
    // Nothing else differs.
    for (object, plain) in argocd.iter().zip(&plain) {
        let (mut object, mut plain) = (object.clone(), plain.clone());
        for one in [&mut object, &mut plain] {
            let annotations = one["metadata"]["annotations"].take();
            let others = annotations.as_object().into_iter().flatten();
            one["metadata"]["annotations"] = others
                .filter(|(key, _)| !key.starts_with("argocd.argoproj.io/"))
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
        }
        if object["kind"] == "StatefulSet" {
            let claim = &mut object["spec"]["volumeClaimTemplates"][0]["metadata"];
            claim.as_object_mut().unwrap().remove("annotations");
        }
        assert_eq!(object, plain);
    }

    let flux = rendered(&["--for", "flux"]);
    let prune = |object: &&serde_json::Value| annotation(object, "kustomize.toolkit.fluxcd.io/prune") == "disabled";
    assert_eq!(
        flux.iter().filter(prune).filter_map(|object| object["kind"].as_str()).collect::<Vec<_>>(),
        ["Namespace"]
    );
    assert_eq!(flux.len(), plain.len());

    let agent = sandbox.run(&["template", "agent", "west", "--for", "argocd"]);
    assert!(documents(agent.succeeds()).iter().all(|object| annotation(object, options) == "ServerSideApply=true"));
}

#[test]
fn the_examples_for_gitops_render_what_they_point_at() {
    let sandbox = Sandbox::new();
    let example =
        |file: &str| fs::read_to_string(format!("{}/examples/gitops/{file}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let page = example("README.md");
    let commands: Vec<&str> = page.lines().filter(|line| line.starts_with("fleetctl ")).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    let mut folders = Vec::new();
    for command in commands {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        sandbox.run(&words).succeeds();
        folders.push(*words.last().unwrap());
        assert!(sandbox.path().join(folders.last().unwrap()).read_dir().unwrap().count() > 5, "{command}");
    }
    assert!(example("application.yaml").contains(&format!("path: {}\n", folders[0])));
    assert!(example("kustomization.yaml").contains(&format!("path: ./{}\n", folders[1])));
}
