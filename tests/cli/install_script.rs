//! `install.sh`: what it puts into place, and that whatever goes wrong leaves nothing.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::server::{Said, ca, serve_as_it_is};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/install.sh");

/// What stands in for the program: large enough to be cut.
fn program(version: &str) -> Vec<u8> {
    format!("#!/bin/sh\necho fleetctl version {version}\n#{}\n", "x".repeat(100_000)).into_bytes()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first file of this name in the usual folders.
fn find(name: &str) -> Option<PathBuf> {
    ["/usr/local/bin", "/usr/bin", "/bin"]
        .map(|folder| Path::new(folder).join(name))
        .into_iter()
        .find(|file| file.is_file())
}

/// A release and a machine to install it on.
struct Machine {
    folder: TempDir,
    files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>,
    /// How many bytes of a file are sent, where that is not all; and whether its length is said.
    cut: Arc<Mutex<Option<(String, usize, bool)>>>,
    address: String,
    shell: Vec<String>,
}

struct Ran {
    code: Option<i32>,
    text: String,
}

impl Machine {
    /// With these programs beside those that every system has.
    fn with(tools: &[&str], shell: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let bin = folder.path().join("tools");
        std::fs::create_dir(&bin).unwrap();
        for name in ["chmod", "cp", "dirname", "mkdir", "mktemp", "mv", "rm", "sh"].iter().chain(tools) {
            symlink(find(name).unwrap_or_else(|| panic!("there is no {name}")), bin.join(name)).unwrap();
        }
        let files: Arc<Mutex<BTreeMap<String, Vec<u8>>>> = Arc::default();
        let cut: Arc<Mutex<Option<(String, usize, bool)>>> = Arc::default();
        let address = serve(Arc::clone(&files), Arc::clone(&cut));
        let shell = shell.iter().map(|word| find(word).map_or((*word).to_owned(), |file| file.display().to_string()));
        let machine = Self { shell: shell.collect(), folder, files, cut, address };
        machine.is("Linux", "x86_64");
        machine.releases("v1.2.0", &["linux-amd64"]);
        machine
    }

    fn usual() -> Self {
        Self::with(&["curl", "sha256sum"], &["sh"])
    }

    /// Says of itself what it is.
    fn is(&self, system: &str, processor: &str) {
        self.has_tool("uname", &format!("[ \"$1\" = -s ] && echo {system} || echo {processor}"));
    }

    /// Gets a program that does what these lines say.
    fn has_tool(&self, name: &str, lines: &str) {
        let file = self.folder.path().join("tools").join(name);
        // Written by another process: a child that another test forks meanwhile would keep it open, and so busy.
        let mut write = Command::new("/bin/sh");
        write.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$2\" >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(&file).arg(lines);
        assert!(write.status().unwrap().success());
    }

    /// Puts a release onto the server.
    fn releases(&self, version: &str, names: &[&str]) {
        let mut files = self.files.lock().unwrap();
        files.clear();
        let mut sums = String::new();
        for name in names {
            let bytes = program(&format!("{version} {name}"));
            sums += &format!("{}  fleetctl-{name}\n", sha256(&bytes));
            files.insert(format!("fleetctl-{name}"), bytes);
        }
        files.insert("SHA256SUMS".to_owned(), sums.into_bytes());
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn install(&self) -> Ran {
        self.install_with(Path::new(SCRIPT), &[])
    }

    fn install_with(&self, script: &Path, environment: &[(&str, &str)]) -> Ran {
        let mut command = self.shell();
        Self::ran(command.arg(script).envs(environment.iter().copied()))
    }

    /// The shell on this machine.
    fn shell(&self) -> Command {
        let mut command = Command::new(&self.shell[0]);
        command.args(&self.shell[1..]).env_clear();
        command.env("PATH", self.folder.path().join("tools")).env("HOME", self.folder.path());
        command.env("FLEETCTL_URL", &self.address).env("FLEETCTL_BIN_DIR", self.target());
        command
    }

    fn ran(command: &mut Command) -> Ran {
        let ended = command.output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        Ran { code: ended.status.code(), text }
    }

    /// What is in the folder of programs.
    fn installed(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.target()).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[track_caller]
    fn fails(&self, ran: &Ran, parts: &[&str]) {
        assert_eq!(ran.code, Some(1), "{}", ran.text);
        for part in parts {
            assert!(ran.text.contains(part), "`{part}` is not in:\n{}", ran.text);
        }
        assert_eq!(self.installed(), [""; 0], "{}", ran.text);
    }

    #[track_caller]
    fn succeeds(&self, ran: &Ran, version: &str) {
        assert_eq!(ran.code, Some(0), "{}", ran.text);
        assert_eq!(self.installed(), ["fleetctl"], "{}", ran.text);
        let file = self.target().join("fleetctl");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o755);
        assert!(std::fs::read_to_string(file).unwrap().contains(version), "{}", ran.text);
        assert!(ran.text.contains(&format!("is installed: fleetctl version {version}")), "{}", ran.text);
    }
}

/// Starts a server of files for the rest of the run, and gives its address.
fn serve(files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>, cut: Arc<Mutex<Option<(String, usize, bool)>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut first = String::new();
            let mut line = String::from("x");
            while !line.trim().is_empty() {
                line.clear();
                if reader.read_line(&mut line).is_err() || line.is_empty() {
                    break;
                }
                if first.is_empty() {
                    first.clone_from(&line);
                }
            }
            let path = first.split(' ').nth(1).unwrap_or_default().trim_start_matches('/').to_owned();
            let found = files.lock().unwrap().get(&path).cloned();
            let Some(body) = found else {
                let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                continue;
            };
            let cut = cut.lock().unwrap().clone().filter(|(name, ..)| *name == path);
            let (sent, says_length) = cut.map_or((body.len(), true), |(_, sent, says)| (sent.min(body.len()), says));
            let length = if says_length { format!("content-length: {}\r\n", body.len()) } else { String::new() };
            let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{length}connection: close\r\n\r\n").as_bytes());
            let _ = stream.write_all(&body[..sent]);
        }
    });
    address
}

#[test]
fn every_shell_and_every_tool_installs_the_program_and_replaces_an_older_one() {
    let mut tried = 0;
    for shell in shells() {
        for get in ["curl", "wget"].into_iter().filter(|name| find(name).is_some()) {
            for sum in ["sha256sum", "shasum", "openssl"].into_iter().filter(|name| find(name).is_some()) {
                let mut tools = vec![get, sum];
                // It is a script of its own language.
                tools.extend((sum == "shasum").then_some("perl"));
                let machine = Machine::with(&tools, shell);
                if (shell[0], get) == ("busybox", "wget") {
                    // Debian's takes its own wget before that of the PATH.
                    machine.fails(&machine.install(), &["may not verify certificates"]);
                    continue;
                }
                machine.succeeds(&machine.install(), "v1.2.0 linux-amd64");
                machine.releases("v1.3.0", &["linux-amd64", "linux-arm64"]);
                machine.succeeds(&machine.install(), "v1.3.0 linux-amd64");
                tried += 1;
            }
        }
    }
    assert!(tried > 0, "a shell, curl or wget, and sha256sum are needed");
}

#[test]
fn the_program_is_that_of_the_system_and_the_processor() {
    let machine = Machine::usual();
    let all = ["linux-amd64", "linux-arm64", "linux-386", "darwin-amd64", "darwin-arm64"];
    machine.releases("v1.2.0", &all);
    for (system, processor, name) in [
        ("Linux", "x86_64", "linux-amd64"),
        ("Linux", "aarch64", "linux-arm64"),
        ("Linux", "i386", "linux-386"),
        ("Linux", "i686", "linux-386"),
        ("Darwin", "x86_64", "darwin-amd64"),
        ("Darwin", "arm64", "darwin-arm64"),
    ] {
        machine.is(system, processor);
        machine.succeeds(&machine.install(), &format!("v1.2.0 {name}"));
    }
    std::fs::remove_dir_all(machine.target()).unwrap();
    for (system, processor, said) in [
        ("FreeBSD", "amd64", "no fleetctl for FreeBSD"),
        ("Linux", "riscv64", "the processor riscv64"),
        ("Darwin", "i386", "macOS on i386"),
    ] {
        machine.is(system, processor);
        machine.fails(&machine.install(), &[said]);
    }
    machine.is("Linux", "aarch64");
    machine.releases("v1.2.0", &["linux-amd64"]);
    machine.fails(&machine.install(), &["SHA256SUMS has no fleetctl-linux-arm64"]);
}

#[test]
fn a_wrong_sum_and_a_cut_download_leave_nothing_and_an_older_program_where_it_was() {
    for get in ["curl", "wget"].into_iter().filter(|name| find(name).is_some()) {
        let machine = Machine::with(&[get, "sha256sum"], &["sh"]);
        let length = program("v1.2.0 linux-amd64").len();
        for says_length in [true, false] {
            for sent in [0, 1, 20, length / 2, length - 1] {
                *machine.cut.lock().unwrap() = Some(("fleetctl-linux-amd64".to_owned(), sent, says_length));
                machine.fails(&machine.install(), &["fleetctl-linux-amd64"]);
            }
            for sent in [0, 10, 70] {
                *machine.cut.lock().unwrap() = Some(("SHA256SUMS".to_owned(), sent, says_length));
                machine.fails(&machine.install(), &["SHA256SUMS"]);
            }
        }
        *machine.cut.lock().unwrap() = None;
        machine.succeeds(&machine.install(), "v1.2.0 linux-amd64");
        machine.files.lock().unwrap().insert("fleetctl-linux-amd64".to_owned(), program("v6.6.6"));
        let wrong = machine.install();
        assert_eq!(wrong.code, Some(1), "{}", wrong.text);
        assert!(wrong.text.contains("does not match SHA256SUMS") && wrong.text.contains(&sha256(&program("v6.6.6"))));
        assert_eq!(machine.installed(), ["fleetctl"]);
        let kept = std::fs::read(machine.target().join("fleetctl")).unwrap();
        assert_eq!(sha256(&kept), sha256(&program("v1.2.0 linux-amd64")));
    }
}

#[test]
fn a_script_that_was_cut_on_its_way_runs_nothing() {
    let machine = Machine::usual();
    let text = std::fs::read_to_string(SCRIPT).unwrap();
    let cut = machine.folder.path().join("cut.sh");
    let ends = text.char_indices().map(|(at, _)| at).filter(|at| at % 97 == 0 || text[..*at].ends_with('\n'));
    // The last line is what calls the rest.
    for end in ends.filter(|end| *end < text.trim_end().len()) {
        std::fs::write(&cut, &text[..end]).unwrap();
        let _ = machine.install_with(&cut, &[]);
        assert!(!machine.target().exists(), "cut at {end}");
    }
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_written() {
    let machine = Machine::usual();
    let with = |environment: &[(&str, &str)]| machine.install_with(Path::new(SCRIPT), environment);
    machine.fails(&with(&[("FLEETCTL_URL", "")]), &["the location of the release is unknown", "FLEETCTL_URL=https://"]);
    machine.fails(&with(&[("FLEETCTL_URL", "http://fleet.example.com/r")]), &["is not https://"]);
    machine.fails(&with(&[("FLEETCTL_URL", "ftp://fleet.example.com/r")]), &["is not https://"]);
    machine.fails(&with(&[("FLEETCTL_URL", "/nowhere")]), &["/nowhere does not contain SHA256SUMS"]);
    machine.fails(&with(&[("FLEETCTL_VERSION", "v1.2.0")]), &["/v1.2.0/SHA256SUMS cannot be downloaded"]);
    machine.fails(&with(&[("FLEETCTL_VERSION", "../x")]), &["is not a version"]);
    machine.fails(&with(&[("FLEETCTL_KEY", "RWQ")]), &["minisign, which verifies the signature, is not installed"]);
    let file = machine.folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    machine.fails(&with(&[("FLEETCTL_BIN_DIR", &file.display().to_string())]), &["cannot be written to"]);
    // What the sums say is right, and it is still no program for this machine.
    let bytes = b"\x7fELF no program".to_vec();
    {
        let mut files = machine.files.lock().unwrap();
        files.insert("SHA256SUMS".to_owned(), format!("{}  fleetctl-linux-amd64\n", sha256(&bytes)).into_bytes());
        files.insert("fleetctl-linux-amd64".to_owned(), bytes);
    }
    machine.fails(&machine.install(), &["does not run on this machine"]);
    for damaged in ["no  fleetctl-linux-amd64\n", "12  fleetctl-linux-amd64\n"] {
        machine.files.lock().unwrap().insert("SHA256SUMS".to_owned(), damaged.as_bytes().to_vec());
        machine.fails(&machine.install(), &["SHA256SUMS is damaged"]);
    }
    let bare = Machine::with(&["sha256sum"], &["sh"]);
    bare.fails(&bare.install(), &["neither curl nor wget"]);
    let unchecked = Machine::with(&["curl"], &["sh"]);
    unchecked.fails(&unchecked.install(), &["neither sha256sum nor shasum nor openssl exists"]);
}

#[test]
fn a_folder_with_a_release_is_enough() {
    let machine = Machine::with(&["sha256sum"], &["sh"]);
    let folder = machine.folder.path().join("release");
    std::fs::create_dir(&folder).unwrap();
    for (name, bytes) in &*machine.files.lock().unwrap() {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    let named = folder.display().to_string();
    machine.succeeds(&machine.install_with(Path::new(SCRIPT), &[("FLEETCTL_URL", &named)]), "v1.2.0 linux-amd64");
    // Beside the script itself.
    std::fs::copy(SCRIPT, folder.join("install.sh")).unwrap();
    std::fs::remove_dir_all(machine.target()).unwrap();
    machine.succeeds(&machine.install_with(&folder.join("install.sh"), &[("FLEETCTL_URL", "")]), "v1.2.0 linux-amd64");
}

#[test]
fn a_script_from_a_pipe_takes_no_release_of_the_current_folder() {
    let machine = Machine::usual();
    let hostile = machine.folder.path().join("hostile");
    std::fs::create_dir(&hostile).unwrap();
    for (name, bytes) in &*machine.files.lock().unwrap() {
        std::fs::write(hostile.join(name), bytes).unwrap();
    }
    // What the shell calls itself is there, too, and looks like the script.
    for name in ["sh", "install.sh"] {
        std::fs::copy(SCRIPT, hostile.join(name)).unwrap();
    }
    let run = |words: &[&str], script: Option<&str>| {
        let mut command = machine.shell();
        command.arg0("sh").args(words).current_dir(&hostile).env("FLEETCTL_URL", "");
        if let Some(script) = script {
            command.stdin(std::fs::File::open(script).unwrap());
        }
        Machine::ran(&mut command)
    };
    let unknown = ["the location of the release is unknown", "by its path: sh ./install.sh"];
    machine.fails(&run(&[], Some(SCRIPT)), &unknown);
    machine.fails(&run(&["-s", "./install.sh"], Some(SCRIPT)), &unknown);
    machine.fails(&run(&["install.sh"], None), &unknown);
    let text = std::fs::read_to_string(SCRIPT).unwrap();
    std::fs::write(hostile.join("other"), "#!/bin/sh\n").unwrap();
    machine.fails(&run(&["-c", &text, "./other"], None), &unknown);
    machine.succeeds(&run(&["./install.sh"], None), "v1.2.0 linux-amd64");
}

/// A server that redirects what is below `/to-http` to itself without TLS, below `/to-https` with it, below `/relative` to a
/// place without a host, and below `/for-ever` to itself; every other file it has.
fn redirecting(files: Arc<Mutex<BTreeMap<String, Vec<u8>>>>) -> String {
    let own: Arc<Mutex<String>> = Arc::default();
    let known = Arc::clone(&own);
    let server = serve_as_it_is(move |asked| {
        let own = known.lock().unwrap().clone();
        let (folder, name) = asked.path.rsplit_once('/').unwrap_or_default();
        let to = match folder {
            "/to-http" => format!("http://{own}/{name}"),
            "/to-https" => format!("https://{own}/relative/{name}"),
            "/relative" => format!("/sibling/{name}"),
            "/sibling" => format!("x/../../{name}"),
            "/for-ever" => format!("https://{own}/for-ever/{name}"),
            _ => String::new(),
        };
        let body = files.lock().unwrap().get(name).cloned().filter(|_| to.is_empty());
        match (to.as_str(), body) {
            ("", None) => Said { status: 404, head: b"x: y".to_vec(), body: Vec::new() },
            ("", Some(body)) => Said { status: 200, head: b"x: y".to_vec(), body },
            (to, _) => Said { status: 302, head: format!("location: {to}").into_bytes(), body: b"elsewhere".to_vec() },
        }
    });
    let address = server.trim_start_matches("http://").to_owned();
    own.lock().unwrap().clone_from(&address);
    address
}

#[test]
fn a_redirect_is_followed_to_https_alone_and_not_for_ever() {
    for get in ["curl", "wget"] {
        let machine = Machine::with(&[get, "sha256sum"], &["sh"]);
        let address = redirecting(Arc::clone(&machine.files));
        let authority = machine.folder.path().join("ca.pem");
        std::fs::write(&authority, ca()).unwrap();
        let authority = authority.display().to_string();
        std::fs::write(machine.folder.path().join(".wgetrc"), format!("ca_certificate = {authority}\n")).unwrap();
        let from = |url: &str| {
            machine.install_with(Path::new(SCRIPT), &[("FLEETCTL_URL", url), ("CURL_CA_BUNDLE", &authority)])
        };
        for folder in ["https://ADDRESS/to-http", "http://ADDRESS/to-http", "https://ADDRESS/for-ever"] {
            machine.fails(&from(&folder.replace("ADDRESS", &address)), &["SHA256SUMS"]);
        }
        machine.fails(&from(&format!("http://{address}/relative")), &["SHA256SUMS"]);
        for folder in ["https://ADDRESS", "https://ADDRESS/to-https", "http://ADDRESS/to-https"] {
            machine.succeeds(&from(&folder.replace("ADDRESS", &address)), "v1.2.0 linux-amd64");
        }
        std::fs::remove_dir_all(machine.target()).unwrap();
        // Whose certificate nobody vouches for is not believed.
        let unknown = machine
            .install_with(Path::new(SCRIPT), &[("FLEETCTL_URL", &format!("https://{address}")), ("HOME", "/nowhere")]);
        machine.fails(&unknown, &["SHA256SUMS cannot be downloaded"]);
    }
}

#[test]
fn a_wget_that_may_check_no_certificate_brings_only_what_is_signed() {
    for help in
        ["BusyBox v1.35.0 (Debian 1:1.35.0-4) multi-call binary.\n--max-redirect", "Usage: wget [-q] [-O FILE] URL"]
    {
        let machine = Machine::with(&["sha256sum"], &["sh"]);
        let release = machine.folder.path().join("release");
        std::fs::create_dir(&release).unwrap();
        for (name, bytes) in &*machine.files.lock().unwrap() {
            std::fs::write(release.join(name), bytes).unwrap();
        }
        std::fs::write(release.join("SHA256SUMS.minisig"), "signed").unwrap();
        let asked = machine.folder.path().join("asked");
        machine.has_tool(
            "wget",
            &format!(
                "if [ \"$1\" = --help ]; then echo '{help}' >&2; exit 1; fi\n\
                 echo \"$4\" >>'{}'\ncp -- '{}'/\"${{4##*/}}\" \"$3\"",
                asked.display(),
                release.display()
            ),
        );
        let url = "https://fleet.example.com/r";
        let install =
            |key: &str| machine.install_with(Path::new(SCRIPT), &[("FLEETCTL_URL", url), ("FLEETCTL_KEY", key)]);
        machine.fails(&install(""), &["may not verify certificates", "curl or GNU wget", "FLEETCTL_KEY"]);
        assert!(!asked.exists(), "the server was asked");
        machine.has_tool("minisign", "exit 1");
        machine.fails(&install("RWQ"), &["was not made with that key"]);
        machine.has_tool("minisign", "[ \"$4\" = RWQ ]");
        machine.succeeds(&install("RWQ"), "v1.2.0 linux-amd64");
    }
}

/// The shells of this machine that the script has to work in.
fn shells() -> impl Iterator<Item = &'static [&'static str]> {
    let shells = [&["sh"][..], &["dash"], &["bash"], &["busybox", "sh"]];
    shells.into_iter().filter(|shell| find(shell[0]).is_some())
}

#[test]
fn sums_are_taken_as_sha256sum_takes_them() {
    let name = "fleetctl-linux-amd64";
    let sum = sha256(&program("v1.2.0 linux-amd64"));
    let upper = sum.to_uppercase();
    let accepted = [
        format!("{sum}  {name}\n"),
        format!("{sum} *{name}\n"),
        format!("{sum}  {name}"),
        format!("{upper}  {name}\n"),
        format!("{upper} *{name}\n"),
        format!("\\{sum}  {name}\n"),
        format!("  \t{sum}  {name}\n"),
        format!("{sum}  ./{name}\n"),
        format!("SHA256 ({name}) = {sum}\n"),
        format!("# sums\n\n{sum}  {name}\n"),
        format!("{sum}  {name}\n{upper} *{name}\n"),
    ];
    for shell in shells() {
        let machine = Machine::with(&["curl", "sha256sum"], shell);
        let offers = |sums: &str| {
            machine.files.lock().unwrap().insert("SHA256SUMS".to_owned(), sums.as_bytes().to_vec());
        };
        for sums in &accepted {
            let folder = TempDir::new().unwrap();
            std::fs::write(folder.path().join(name), program("v1.2.0 linux-amd64")).unwrap();
            std::fs::write(folder.path().join("SHA256SUMS"), sums).unwrap();
            let oracle = Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(folder.path()).output();
            assert!(oracle.unwrap().status.success(), "sha256sum refuses {sums:?}");
            offers(sums);
            machine.succeeds(&machine.install(), "v1.2.0 linux-amd64");
        }
        // Names of which this is a part, with a blank or what is escaped in them.
        let other = sha256(b"");
        offers(&format!("{other}  {name} copy\n\\{other}  \\n{name}\n{sum}  {name}\n{other}  x {name}\n"));
        machine.succeeds(&machine.install(), "v1.2.0 linux-amd64");
        std::fs::remove_dir_all(machine.target()).unwrap();
        offers(&format!("{other}  {name} copy\n"));
        machine.fails(&machine.install(), &["SHA256SUMS has no fleetctl-linux-amd64"]);
        for damaged in
            [format!("{sum}  {name}\n{other}  {name}\n"), format!("{}g  {name}\n", &sum[1..]), format!("  {name}\n")]
        {
            offers(&damaged);
            machine.fails(&machine.install(), &["SHA256SUMS"]);
        }
        for (sums, told) in [
            (format!("{sum}  {name}\r\n"), "line ends of Windows (CRLF)"),
            (format!("\u{feff}{sum}  {name}\n"), "byte order mark"),
        ] {
            offers(&sums);
            machine.fails(&machine.install(), &[told, "without conversion"]);
        }
    }
}

#[test]
fn the_path_is_read_as_the_file_system_has_it() {
    for shell in shells() {
        let machine = Machine::with(&["sha256sum", "curl"], shell);
        let at = |name: &str| machine.folder.path().join(name).display().to_string();
        symlink(machine.target(), machine.folder.path().join("link")).unwrap();
        std::fs::create_dir(machine.folder.path().join("other")).unwrap();
        let install = |folder: &str, path: &str| {
            let mut command = machine.shell();
            command.arg(SCRIPT).current_dir(machine.folder.path());
            // Of what may be in an environment, nothing changes what the script does.
            for (name, value) in [("CDPATH", "/"), ("IFS", "/"), ("LC_ALL", "tr_TR.UTF-8"), ("POSIXLY_CORRECT", "1")] {
                command.env(name, value);
            }
            command.env("PATH", format!("{}:{path}", at("tools"))).env("FLEETCTL_BIN_DIR", folder);
            let ran = Machine::ran(&mut command);
            machine.succeeds(&ran, "v1.2.0 linux-amd64");
            ran.text
        };
        let (bin, link) = (at("bin"), at("link"));
        let twice = bin.replace("/bin", "//bin");
        for (folder, path) in [
            (&*bin, format!("{bin}/")),
            (&format!("{bin}/"), bin.clone()),
            (&link, bin.clone()),
            (&bin, link.clone()),
            (&bin, format!("{link}//")),
            (&twice, bin.clone()),
            ("bin", bin.clone()),
            ("./other/../bin", bin.clone()),
            (&bin, "bin".to_owned()),
            (&bin, format!("/nonexistent:{bin}")),
        ] {
            let text = install(folder, &path);
            assert!(!text.contains("to the PATH"), "{shell:?}: {folder} on {path}: {text}");
        }
        // What is to be added is of use from everywhere, and is read by a shell as it is.
        let text = install("bin", "/nonexistent");
        assert!(text.contains(&format!("export PATH=\"{bin}:$PATH\"")), "{text}");
        // The one that comes first is named, as long as it can be run.
        let first = machine.folder.path().join("other/fleetctl");
        std::fs::write(&first, "").unwrap();
        let path = format!("{}:{bin}", at("other"));
        assert!(!install(&bin, &path).contains("comes first on the PATH"));
        std::fs::set_permissions(&first, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(install(&bin, &path).contains(&format!("{} comes first on the PATH", first.display())));
    }
}

#[test]
fn a_folder_with_signs_of_the_shell_is_quoted() {
    for shell in shells() {
        let machine = Machine::with(&["curl", "sha256sum"], shell);
        let folder = machine.folder.path().join("a \"b\" $c `d` \\e");
        let named = folder.display().to_string();
        let ran = machine.install_with(Path::new(SCRIPT), &[("FLEETCTL_BIN_DIR", &named)]);
        assert_eq!(ran.code, Some(0), "{}", ran.text);
        let line = ran.text.lines().find_map(|line| line.strip_prefix("Add the folder to the PATH: ")).unwrap();
        let told = Command::new("/bin/sh").args(["-c", &format!("{line}; printf %s \"$PATH\"")]).output().unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        assert!(told.starts_with(&format!("{named}:")), "{line} gives {told}");
    }
}

#[test]
fn a_folder_in_which_nothing_may_run_is_named() {
    let machine = Machine::usual();
    // As a file system that is mounted noexec has it.
    std::fs::remove_file(machine.folder.path().join("tools/chmod")).unwrap();
    machine.has_tool("chmod", "");
    machine.fails(&machine.install(), &["does not allow programs to run", "noexec", "FLEETCTL_BIN_DIR"]);
}
