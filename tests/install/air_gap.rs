//! Without the Internet: images are copied to a mirror as the program prints it, tried by the nodes, and run by their digests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::Site;

/// A registry of one's own, as skopeo reaches it: the bed's. What would come from the Internet comes from there as well, under
/// the paths that the bed's nodes have it by.
fn registries(home: &Path, registry: &str) {
    let folder = home.join(".config/containers");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("policy.json"), r#"{"default": [{"type": "insecureAcceptAnything"}]}"#).unwrap();
    let one =
        |prefix: &str| format!("[[registry]]\nprefix = \"{prefix}\"\nlocation = \"{registry}\"\ninsecure = true\n");
    let all = ["registry.k8s.io", "docker.io", registry].map(one).concat();
    std::fs::write(folder.join("registries.conf"), all).unwrap();
}

/// Runs a shell's line as this user; gives what it prints.
fn shell(site: &Site, line: &str) -> String {
    let mut command = Command::new("sh");
    command.env_clear().env("HOME", site.home()).env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
    let conf = site.home().join(".config/containers/registries.conf");
    let output = command.env("CONTAINERS_REGISTRIES_CONF", conf).args(["-euc", line]).output().unwrap();
    assert!(output.status.success(), "{line}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn images_are_mirrored_as_printed_tried_by_the_nodes_and_run_by_their_digests() {
    let site = Site::on("host");
    let registry = site.bed.registry().unwrap();
    registries(site.home(), &registry);
    let before = site.dump();
    let mirror = ["--preset", "airgap", "--image-registry", &registry];
    let on_nodes = format!("{registry}/registry.k8s.io/etcd");
    let commands = site.fleetctl(&[&["show", "images", "control-plane", "-o", "skopeo"], &mirror[..]].concat());
    assert!(commands.succeeds().contains(&format!("docker://{on_nodes}:")), "{commands:?}");
    shell(&site, commands.succeeds());

    // Digests as tools print them, into a lock that holds every image to them.
    let names = site.fleetctl(&[&["show", "images", "control-plane", "-o", "name"], &mirror[..]].concat());
    let line = |name: &str| format!("echo {name} $(skopeo inspect --format '{{{{.Digest}}}}' docker://{name})\n");
    let digests = shell(&site, &names.succeeds().lines().map(line).collect::<String>());
    let [file, lock] = ["digests", "images.lock"].map(|name| site.home().join(name).display().to_string());
    std::fs::write(&file, digests).unwrap();
    let locked = site.fleetctl(&[&["show", "images", "control-plane", "--digests", &file], &mirror[..]].concat());
    std::fs::write(&lock, locked.succeeds()).unwrap();
    let by_digest = [&mirror[..], &["--image-lock", &lock]].concat();

    // Without the namespace there is nothing that pods could be made in.
    let check = |images: &[&str], more: &[&str]| {
        site.fleetctl(&[&["check", "demo", "--pre", "--pull-images"], images, more].concat())
    };
    let none = check(&by_digest, &[]);
    assert_eq!(none.code, Some(3), "{none:?}");
    let said = ["namespace fleet does not exist", "create namespace fleet`"];
    assert!(said.iter().all(|part| none.stdout.contains(part)), "{none:?}");
    site.kubectl(&["create", "namespace", "fleet"]);
    let with_namespace = site.dump();
    let good = check(&by_digest, &[]);
    assert!(good.succeeds().contains("images (images-reachable): the nodes have pulled all 4"), "{good:?}");
    assert!(good.stderr.contains("Pulling 4 images on the nodes"), "{good:?}");

    // One that the mirror lacks, one that is another architecture's, and one whose index has nothing for the node.
    let refused = |repository: &str, said: [&str; 2]| {
        let repository = format!("etcd.image.repository={repository}");
        let ran = check(&mirror, &["--set", &repository]);
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stdout.contains("images-reachable): 1 of 4 cannot be pulled or run: image `"), "{ran:?}");
        assert!(said.iter().all(|part| ran.stdout.contains(part)), "{ran:?}");
    };
    refused("registry.k8s.io/none", ["not found", "check the repository and the tag"]);
    let tag = names.stdout.lines().find_map(|name| name.split_once("/etcd:")).unwrap().1;
    // Names that no node has seen: one that has an image asks no registry.
    let fresh = format!("registry.k8s.io/foreign-{}", std::process::id());
    foreign(&site, &registry, &fresh, tag);
    refused(&fresh, ["exec format error", "whole image index"]);
    refused(&format!("{fresh}-index"), ["no match for platform", "whole image index"]);
    site.assert_same_as(&with_namespace);

    site.install(&by_digest).succeeds();
    let path = "jsonpath={range .items[*].spec.containers[*]}{.image}{'\\n'}{end}";
    let images = site.kubectl(&["-n", "fleet", "get", "pods", "-o", path]);
    assert!(images.lines().count() >= 4, "{images}");
    for image in images.lines() {
        assert!(image.starts_with(&format!("{registry}/")) && image.contains("@sha256:"), "{image}");
    }
    assert!(site.fleetctl(&["status", "demo"]).code == Some(0));
    site.fleetctl(&["uninstall", "cp", "demo", "--yes", "--delete-data"]).succeeds();
    site.kubectl(&["delete", "namespace", "fleet", "--wait=true"]);
    site.assert_same_as(&before);
}

/// Puts an image for another architecture into the registry, and an index that has nothing else.
fn foreign(site: &Site, registry: &str, repository: &str, tag: &str) {
    // The first bytes of a program for s390x, where the chart expects etcd.
    let build = r#"cd "$HOME"; mkdir -p image/usr/local/bin
        { printf '\177ELF\002\002\001'; head -c 10 /dev/zero; printf '\002\000\026'; head -c 44 /dev/zero; } > image/usr/local/bin/etcd
        chmod 755 image/usr/local/bin/etcd; tar -cf layer.tar -C image usr
        sum=$(sha256sum layer.tar | cut -d' ' -f1)
        cat > config.json <<END
        {"architecture": "s390x", "os": "linux", "config": {"Env": ["PATH=/usr/local/bin"]},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:$sum"]}}
END
        echo '[{"Config": "config.json", "RepoTags": ["foreign:v1"], "Layers": ["layer.tar"]}]' > manifest.json
        tar -cf image.tar manifest.json config.json layer.tar"#;
    shell(site, build);
    let push = |to: &str| format!("skopeo copy --quiet docker-archive:$HOME/image.tar docker://{registry}/{to}:{tag}");
    let index_of = format!("{repository}-index");
    shell(site, &push(repository));
    shell(site, &push(&index_of));
    let raw = shell(site, &format!("skopeo inspect --raw docker://{registry}/{index_of}:{tag}"));
    let digest = format!("sha256:{:x}", Sha256::digest(&raw));
    let manifest: Value = serde_json::from_str(&raw).unwrap();
    let index = "application/vnd.oci.image.index.v1+json";
    let one = json!({"mediaType": manifest["mediaType"], "digest": digest, "size": raw.len(),
        "platform": {"architecture": "s390x", "os": "linux"}});
    let body = json!({"schemaVersion": 2, "mediaType": index, "manifests": [one]}).to_string();
    let mut stream = TcpStream::connect(registry).unwrap();
    let path = format!("/v2/{index_of}/manifests/{tag}");
    let length = body.len();
    write!(stream, "PUT {path} HTTP/1.1\r\nHost: {registry}\r\nContent-Type: {index}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
}
