//! `mount.erofs` with the options of erofs-utils for registries and S3 stores; and who sees the
//! passwords.

use std::path::{Path, PathBuf};

use ferofs_tests::{Mount, Run, ferofs_path, need};

use super::registry::registry_with_password;
use super::web::{put, store};
use super::{field, isolated, sealed, sealed_image};
use crate::common::fixture::Fixture;

/// `mount.erofs` with an empty home and the cache of the fixture.
fn mount_erofs(fixture: &Fixture) -> Run {
    let link = fixture.path("mount.erofs");
    // The second call finds it.
    let _ = std::os::unix::fs::symlink(ferofs_path(), &link);
    let home = fixture.path("home");
    std::fs::create_dir_all(&home).unwrap();
    Run::new(link)
        .env("HOME", &home)
        .env("FEROFS_CACHE_DIR", fixture.path("cache"))
        .env("XDG_RUNTIME_DIR", "")
}

/// The arguments of all processes that mention `name`.
fn visible_arguments(name: &str) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(name))
        .collect()
}

#[track_caller]
fn shows_the_image(mount: &Path, image: &Path, fixture: &Fixture) {
    assert_eq!(std::fs::read(mount.join("greeting")).unwrap(), b"hello\n");
    let data = std::fs::read(fixture.source().join("data")).unwrap();
    assert!(std::fs::read(mount.join("data")).unwrap() == data, "{}", image.display());
}

#[test]
fn images_in_registries_without_passwords_in_sight() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let Some(registry) = registry_with_password(&fixture) else { return };
    let (image, _) = sealed_image(&fixture);
    let name = format!("{}/team/app:1", registry.address);
    let push = isolated(&fixture)
        .env("FEROFS_PASSWORD", "secret")
        .args(["push", "--json", "--user", "me"]);
    let pushed = push.arg(&image).arg(format!("oci://{name}")).success();
    let dir = fixture.directory("mount");

    let blob = field(&pushed.stdout, "layer")["sha256:".len()..].to_owned();
    for options in [
        "oci.layer=0,oci.username=me,oci.password=secret,oci.platform=linux/amd64,nofail",
        &format!("oci.blob={blob},oci.username=me,oci.password=secret,oci.insecure"),
    ] {
        let run = mount_erofs(&fixture)
            .args(["-t", "erofs.nbd", "-o", options, &name])
            .arg(&dir)
            .success();
        let mount = Mount::adopt(&dir);
        run.says("ferofs has no NBD; mounting through FUSE");
        shows_the_image(mount.path(), &image, &fixture);
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(table.contains(&format!("oci://{name}")) && !table.contains("secret"), "{table}");
        let visible = visible_arguments(&name);
        assert!(
            visible.len() >= 3 && !visible.iter().any(|line| line.contains("secret")),
            "{visible:?}"
        );
        mount.unmount().unwrap();
    }

    let refused = |options: &str| {
        let run = mount_erofs(&fixture)
            .args(["-t", "erofs.fuse", "-o", options, &name])
            .arg(&dir)
            .failure(1);
        assert!(!run.stderr.contains("wr0ng") && run.stderr.lines().count() == 1, "{}", run.stderr);
        run.stderr
    };
    std::fs::remove_dir_all(fixture.path("cache")).unwrap();
    assert!(refused("oci.username=me,oci.password=wr0ng,on_error=eio").contains("401"));
    assert!(refused("oci.layer=7,oci.username=me,oci.password=secret").contains("layer"));
    assert!(refused("oci.tarindex=/tmp/index").contains("ferofs convert"));
}

#[test]
fn a_daemon_in_the_foreground_hides_its_password() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let Some(registry) = registry_with_password(&fixture) else { return };
    let (image, _) = sealed_image(&fixture);
    let location = format!("oci://{}/app:1", registry.address);
    isolated(&fixture).args(["push", "--user", "me:secret"]).arg(&image).arg(&location).success();
    let dir = fixture.directory("mount");
    let cache = fixture.path("cache");
    let options =
        ["--user".as_ref(), "me:secret".as_ref(), "--cache-dir".as_ref(), cache.as_os_str()];
    let mount = Mount::fuse_with(ferofs_path(), &options, Path::new(&location), &dir).unwrap();
    shows_the_image(mount.path(), &image, &fixture);
    let visible = visible_arguments(&location);
    assert!(
        visible.len() >= 3 && !visible.iter().any(|line| line.contains("secret")),
        "{visible:?}"
    );
    assert_eq!(mount.unmount().unwrap(), (Some(0), String::new()));
}

#[test]
fn images_in_stores() {
    require!(need::fuse());
    let Some(store) = store() else { return };
    let (fixture, image, root) = sealed();
    put(&store.address, "/bucket", b"");
    put(&store.address, "/bucket/dir/image.erofs", &std::fs::read(&image).unwrap());
    let passwd: PathBuf = fixture.path("passwd");
    std::fs::write(&passwd, "key:hidden\n").unwrap();
    let dir = fixture.directory("mount");
    let options = format!(
        "s3.endpoint=http://{},s3.passwd_file={},s3.region=us-east-1,s3.sig=4,s3.urlstyle=path,roothash={root}",
        store.address,
        passwd.display()
    );
    mount_erofs(&fixture)
        .args(["-t", "erofs.ublk", "-o", &options, "bucket/dir/image.erofs"])
        .arg(&dir)
        .success();
    let mount = Mount::adopt(&dir);
    shows_the_image(mount.path(), &image, &fixture);
    mount.unmount().unwrap();
    // Now it is in the cache.
    let offline = format!("s3.region=us-east-1,offline,roothash={root}");
    mount_erofs(&fixture).args(["-o", &offline, "bucket/dir/image.erofs"]).arg(&dir).success();
    let mount = Mount::adopt(&dir);
    shows_the_image(mount.path(), &image, &fixture);
    mount.unmount().unwrap();
}
