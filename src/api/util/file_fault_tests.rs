//! Tests of faults of files: those that a user who may do everything can provoke, and the texts of the others.

use std::os::unix::fs::symlink;

use super::*;

/// The cause and the remedy of the error that reading a path gives, without the folder of the test.
fn read(folder: &Path, name: &str) -> (String, String) {
    let path = folder.join(name);
    let error = std::fs::read_to_string(&path).unwrap_err();
    let fault = FileFault::from_io_error(&path, Usage::Read, &error);
    let texts = [fault.to_string(), fault.remedy().unwrap_or_default().to_owned()];
    texts.map(|text| text.replace(&folder.display().to_string(), "DIR")).into()
}

#[test]
fn each_fault_of_a_path_has_its_own_words() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::write(root.join("file"), [0xff]).unwrap();
    std::fs::create_dir(root.join("sub")).unwrap();
    symlink("nothing", root.join("dangling")).unwrap();
    symlink("circle", root.join("circle")).unwrap();
    symlink("gone/folder", root.join("to-folder")).unwrap();
    for (name, cause, remedy) in [
        ("none", "it does not exist", ""),
        ("a/b/none", "the folder `DIR/a` does not exist", ""),
        (
            "dangling",
            "`DIR/dangling` is a symbolic link to `nothing`, which does not exist",
            "inspect it: `ls -l DIR/dangling`",
        ),
        (
            "to-folder/x",
            "`DIR/to-folder` is a symbolic link to `gone/folder`, which does not exist",
            "inspect it: `ls -l DIR/to-folder`",
        ),
        ("circle", "its symbolic links form a loop", "inspect them: `ls -l DIR/circle`"),
        ("file/below", "`DIR/file` is a file, but a folder is needed", "move it away: `mv DIR/file DIR/file.old`"),
        ("sub", "it is a folder, not a file", ""),
    ] {
        assert_eq!(read(root, name), (cause.to_owned(), remedy.to_owned()), "{name}");
    }
    assert!(read(root, "file").0.contains("UTF-8"));
    let path = root.join("dangling/new");
    let fault = FileFault::from_io_error(&path, Usage::Write, &std::fs::create_dir_all(&path).unwrap_err());
    let link = root.join("dangling");
    assert_eq!(
        fault.to_string(),
        format!("`{}` is a symbolic link to `nothing`, which does not exist", link.display())
    );
    let path = root.join("a/b c/new");
    let fault = FileFault::from_io_error(&path, Usage::Write, &std::fs::File::create(&path).unwrap_err());
    assert_eq!(fault.remedy().unwrap(), format!("create the folder: `mkdir -p '{}'`", root.join("a/b c").display()));
}

fn describe_denial(
    path: &Path,
    place: &Path,
    user: u32,
    is_folder: bool,
    mine: u32,
    is_at_home: bool,
    usage: Usage,
) -> String {
    let owner = Owner { user, mode: 0o700, is_folder };
    let (cause, remedy) = describe_owner(path, place, &owner, usage, mine, is_at_home);
    format!("{cause}; {}", remedy.unwrap())
}

#[test]
fn a_refusal_names_owner_and_command() {
    let (path, place) = (Path::new("/home/ann/.fleet/demo/key file"), Path::new("/home/ann/.fleet"));
    let unknown = 4_000_000_000;
    assert_eq!(
        describe_denial(path, place, ROOT, true, unknown, true, Usage::Read),
        "permission denied: `/home/ann/.fleet` is owned by root (mode 0700), and this program runs as user \
         4000000000; take ownership again: `sudo chown -R 4000000000 /home/ann/.fleet`"
    );
    for (text, remedy) in [
        (
            describe_denial(path, path, ROOT, false, unknown, true, Usage::Write),
            "`sudo chown 4000000000 '/home/ann/.fleet/demo/key file'`",
        ),
        (describe_denial(path, place, unknown, true, unknown, true, Usage::Read), "`chmod u+rwx /home/ann/.fleet`"),
        (
            describe_denial(path, path, unknown, false, unknown, true, Usage::Read),
            "`chmod u+rw '/home/ann/.fleet/demo/key file'`",
        ),
        (
            describe_denial(
                Path::new("/etc/k.yaml"),
                Path::new("/etc/k.yaml"),
                ROOT,
                false,
                unknown,
                false,
                Usage::Read,
            ),
            "`sudo install -m 600 -o 4000000000 /etc/k.yaml COPY`",
        ),
        (
            describe_denial(Path::new("/etc/k.yaml"), Path::new("/etc"), ROOT, true, unknown, false, Usage::Write),
            "choose a path that you own, or run the command as root",
        ),
        (describe_denial(path, place, unknown, true, ROOT, true, Usage::Read), "`sudo -u 4000000000`"),
    ] {
        assert!(text.ends_with(remedy), "{text}");
    }
}

fn write_fault(path: &Path, kind: io::ErrorKind) -> FileFault {
    FileFault::from_io_error(path, Usage::Write, &kind.into())
}

#[test]
fn a_file_system_is_named_by_its_mount_point() {
    let path = Path::new("/proc/self/nothing/there");
    for (kind, cause, remedy) in [
        (K::ReadOnlyFilesystem, "the file system at `/proc` is read-only", "`sudo mount -o remount,rw /proc`"),
        (K::StorageFull, "no space left", "`df -"),
        (K::QuotaExceeded, "the disk quota of ", "`quota -s`"),
        (
            K::StaleNetworkFileHandle,
            "the server of the network file system no longer has this file",
            "`sudo umount /proc && ",
        ),
        (K::ResourceBusy, "`/proc/self/nothing/there` is a mount point", "mount its folder /proc/self/nothing instead"),
    ] {
        let fault = write_fault(path, kind);
        assert!(fault.to_string().starts_with(cause), "{fault}");
        assert!(fault.remedy().unwrap().contains(remedy), "{fault:?}");
    }
    let known = "t / ext4 rw 0 0\nt /home/a ext4 ro 0 0\nt /home/a/of\\040two ext4 ro 0 0\nt /home/ab ext4 ro 0 0\n";
    for (place, point) in [("/home/a/x", "/home/a"), ("/home/abc/x", "/"), ("/home/a/of two", "/home/a/of two")] {
        assert_eq!(find_listed_mount(known, Path::new(place)), Some(PathBuf::from(point)), "{place}");
    }
    assert_eq!(find_listed_mount("", Path::new("/home")), None);
    // An error that was classified is not classified again, and keeps its kind.
    let error = io::Error::from(write_fault(path, K::StorageFull));
    assert_eq!(error.kind(), K::StorageFull);
    assert_eq!(FileFault::from_io_error(Path::new("/"), Usage::Read, &error), write_fault(path, K::StorageFull));
}
