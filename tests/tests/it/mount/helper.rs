//! ferofs installed as `/sbin/mount.erofs`, which mount(8) starts for `-t erofs`.
//!
//! Each test runs in its own mount and process namespaces, where a directory with this link is
//! mounted on /sbin, and with a limit on time. So the /sbin of this machine does not change, and
//! processes that start each other without end are ended with the namespace.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferofs_tests::{Outcome, Run, ferofs, ferofs_path, need};

/// Much more than a few mounts take. mount(8) and the helper that start each other without end
/// reach this limit.
const LIMIT: Duration = Duration::from_secs(60);

/// A directory with the images `plain.erofs`, `behind.img` (the same image at offset 1 MiB) and
/// `index.erofs` with its extra device `data.img`, all of a tree with a file `hello`; with
/// `links/mount.erofs`; and with the directory `mnt`.
struct Images(tempfile::TempDir);

impl Images {
    fn new() -> Self {
        let images = Self(ferofs_tests::scratch());
        for dir in ["tree", "links", "mnt"] {
            std::fs::create_dir(images.path(dir)).unwrap();
        }
        std::fs::write(images.path("tree/hello"), "hello, world\n".repeat(1000)).unwrap();
        std::os::unix::fs::symlink(ferofs_path(), images.path("links/mount.erofs")).unwrap();
        let build = || ferofs!("build", images.path("tree"));
        build().arg(images.path("plain.erofs")).success();
        let mut behind = vec![0; 1 << 20];
        behind.extend(std::fs::read(images.path("plain.erofs")).unwrap());
        std::fs::write(images.path("behind.img"), behind).unwrap();
        let mkfs = images.path("links/mkfs.erofs");
        std::os::unix::fs::symlink(ferofs_path(), &mkfs).unwrap();
        let mut blob = std::ffi::OsString::from("--blobdev=");
        blob.push(images.path("data.img"));
        let index = Run::new(&mkfs).arg("--quiet").arg("--chunksize=4096").arg(blob);
        index.arg(images.path("index.erofs")).arg(images.path("tree")).success();
        images
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs a script of sh(1) in the directory, with `links` mounted on /sbin.
    fn run(&self, script: &str) -> Outcome {
        // The namespace has copies of the mounts of other tests, whose daemons would not end before
        // it does. /sbin is often a symlink.
        let script = format!(
            "umount -a -l -t fuse.ferofs,fuse.erofsfuse || true\ncd '{}'\nmount --bind links \"$(readlink -f /sbin)\"\n{script}",
            self.0.path().display()
        );
        let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        let run = Run::limited("unshare", None, LIMIT).args(namespaces);
        run.args(["sh", "-eu", "-c"]).arg(script).try_run().unwrap()
    }

    /// Runs the command `mount`, and returns the options and type of the new mount. Fails unless it
    /// shows the tree, and unless umount(8) removes it and its loop devices.
    #[track_caller]
    fn mounted(&self, mount: &str) -> String {
        let script = format!(
            "{mount}\ncmp tree/hello mnt/hello\n\
             grep \" $PWD/mnt \" /proc/self/mountinfo | sed 's/^[^/]*[^ ]* [^ ]* //'\numount mnt"
        );
        let outcome = self.run(&script).success();
        assert_eq!(self.loops(), Vec::<PathBuf>::new(), "{mount}");
        outcome.text()
    }

    /// The loop devices of files in this directory.
    fn loops(&self) -> Vec<PathBuf> {
        let devices = std::fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
        let backing = |device: &PathBuf| std::fs::read_to_string(device.join("loop/backing_file"));
        devices
            .filter(|device| {
                backing(device).is_ok_and(|file| Path::new(&file).starts_with(self.0.path()))
            })
            .collect()
    }
}

fn possible() -> bool {
    need::kernel_erofs() && need::tool("unshare").is_some() && need::tool("mount").is_some()
}

#[test]
fn mount_starts_the_helper_once() {
    require!(possible());
    let images = Images::new();
    for options in [
        "",
        "-v -n",
        "-o defaults",
        "-o loop",
        "-o ro,nofail,noauto,_netdev,x-systemd.automount,X-note,comment=none",
        "-o 'context=\"system_u:object_r:tmp_t:s0:c1,c2\"'",
        "-o acl,cache_strategy=disabled",
        "-N /proc/self/ns/mnt",
    ] {
        // A namespace is entered at its own root, outside of a chroot.
        if options.starts_with("-N") && !need::user_namespaces() {
            continue;
        }
        let mounted =
            images.mounted(&format!("mount -t erofs {options} $PWD/plain.erofs $PWD/mnt"));
        assert!(mounted.contains(" - erofs "), "{options}: {mounted}");
    }
    let restricted = images.mounted("mount -t erofs -o user,noatime plain.erofs mnt");
    assert!(restricted.starts_with("ro,nosuid,nodev,noexec,noatime"), "{restricted}");
    let behind = images.mounted("mount -t erofs -o loop,offset=1MiB behind.img mnt");
    assert!(behind.contains(" - erofs /dev/loop"), "{behind}");
    let index = images.mounted("mount -t erofs -o device=data.img index.erofs mnt");
    assert!(index.contains(" - erofs "), "{index}");
    let remounted = images.mounted("mount -t erofs plain.erofs mnt; mount -o remount,noexec mnt");
    assert!(remounted.starts_with("ro,noexec"), "{remounted}");
    let table = "printf '%s %s erofs ro,user,nofail 0 0\\n' $PWD/plain.erofs $PWD/mnt > fstab; mount -T fstab mnt";
    assert!(images.mounted(table).contains(" - erofs "));
}

#[test]
fn mount_8_mounts_the_fuse_types_through_fuse() {
    require!(possible() && need::fuse());
    let images = Images::new();
    for kind in ["erofs.fuse", "erofs.ferofs"] {
        let mounted = images.mounted(&format!("mount -t {kind} plain.erofs mnt"));
        assert!(mounted.contains(" - fuse"), "{mounted}");
    }
}

#[test]
fn a_remount_says_what_it_cannot_change() {
    require!(possible() && need::fuse());
    let images = Images::new();
    for mount in ["ferofs mount --fuse", "ferofs mount --kernel"] {
        let mounted = images.mounted(&format!(
            "PATH=\"$PWD/links:$PATH\"\nln -sf {} links/ferofs\n\
             {mount} -o nosuid,nodev,noexec plain.erofs mnt\n\
             ferofs mount -o remount,noatime mnt mnt\n\
             for wrong in --roothash=$(printf %064d 0) --patch=data.img -oroothash=$(printf %064d 0) -odevice=data.img; do\n\
             if ferofs mount -o remount,atime \"$wrong\" plain.erofs mnt 2>error; then exit 3; fi\n\
             grep -q 'cannot change this' error; done\n\
             if ferofs mount -o remount behind.img mnt 2>error; then exit 4; fi\n\
             grep -q 'a remount cannot mount behind.img' error\n\
             mkdir -p tmp; mount -t tmpfs tmp tmp\n\
             if ferofs mount -o remount,noexec tmp tmp 2>error; then exit 5; fi\n\
             grep -q 'type tmpfs' error; umount tmp",
            ferofs_path().display()
        ));
        assert!(mounted.starts_with("ro,nosuid,nodev,noexec,noatime"), "{mounted}");
    }
}

#[test]
fn a_remount_keeps_the_options_of_the_driver() {
    require!(possible() && need::fuse());
    let images = Images::new();
    let path =
        format!("PATH=\"$PWD/links:$PATH\"; ln -sf {} links/ferofs", ferofs_path().display());
    let kernel = format!(
        "{path}; ferofs mount --kernel -o noacl,cache_strategy=disabled,strictatime plain.erofs mnt"
    );
    let noexec = images.mounted(&format!("{kernel}; ferofs mount -o remount,noexec mnt mnt"));
    assert!(noexec.starts_with("ro,noexec - "), "{noexec}");
    assert!(noexec.contains(",noacl,cache_strategy=disabled"), "{noexec}");
    let acl = images.mounted(&format!("{kernel}; ferofs mount -o remount,acl,relatime mnt mnt"));
    assert!(acl.starts_with("ro,relatime - "), "{acl}");
    assert!(acl.contains(",acl,cache_strategy=disabled"), "{acl}");
    // Linux has it from 6.13 on.
    let shown = "grep -o ',directio' /proc/self/mountinfo";
    images.mounted(&format!(
        "{path}; ferofs mount --kernel -o directio plain.erofs mnt || ferofs mount --kernel plain.erofs mnt
         {shown} > before || true; ferofs mount -o remount,noacl mnt mnt; {shown} > after || true; cmp before after >&2"
    ));
    let refused = |option: &str| {
        format!(
            "if ferofs mount {option} -o remount mnt mnt 2>error; then exit 3; fi
             grep -e '{option}: a remount cannot change this' error"
        )
    };
    images.mounted(&format!("{kernel}; ({}) > /dev/null", refused("--fuse")));
    images.mounted(&format!(
        "{path}; ferofs mount --fuse plain.erofs mnt; ({}) >/dev/null; ferofs mount --fuse -o remount mnt mnt",
        [refused("--kernel"), refused("--offline")].join("; ")
    ));
}

/// Puts the programs of mount.fuse(8) and ferofs into the directory that is mounted on /sbin, and
/// says in a script that they are in PATH.
fn with_mount_fuse(images: &Images) -> Option<&'static str> {
    let program = need::tool("mount.fuse3")?;
    std::fs::copy(program, images.path("links/mount.fuse")).unwrap();
    std::os::unix::fs::symlink(ferofs_path(), images.path("links/ferofs")).unwrap();
    Some("PATH=\"$PWD/links:$PATH\"\n")
}

#[test]
fn a_remount_does_not_start_the_image_as_a_program() {
    require!(possible() && need::fuse());
    let images = Images::new();
    let Some(path) = with_mount_fuse(&images) else { return };
    // The first 1024 bytes of an image are free.
    let mut image = std::fs::read(images.path("plain.erofs")).unwrap();
    let program = format!("#!/bin/sh\ntouch '{}'\nexit 0\n", images.path("started").display());
    image[..program.len()].copy_from_slice(program.as_bytes());
    std::fs::write(images.path("plain.erofs"), image).unwrap();
    std::fs::set_permissions(images.path("plain.erofs"), PermissionsExt::from_mode(0o755)).unwrap();
    for mount in [
        "ferofs mount --fuse plain.erofs mnt",
        "mount -t fuse.ferofs -o nosuid,nodev $PWD/plain.erofs mnt",
    ] {
        let mounted = images.mounted(&format!("{path}{mount}; mount -o remount,noatime mnt"));
        assert!(mounted.starts_with("ro,nosuid,nodev,noatime"), "{mounted}");
        assert!(
            mounted.contains(" - fuse.ferofs ") && !images.path("started").exists(),
            "{mounted}"
        );
    }
}

#[test]
fn lines_of_fstab_mount_once_and_unmount_by_type() {
    require!(possible() && need::fuse());
    let images = Images::new();
    for name in ["mount.fuse.ferofs", "mount.fuse.erofsfuse"] {
        std::os::unix::fs::symlink(ferofs_path(), images.path("links").join(name)).unwrap();
    }
    for (kind, shown) in [
        ("erofs.ferofs", "fuse.ferofs"),
        ("erofs.fuse", "fuse.ferofs"),
        ("fuse.ferofs", "fuse.ferofs"),
        ("fuse.erofsfuse", "fuse.erofsfuse"),
    ] {
        let script = format!(
            "echo \"$PWD/plain.erofs $PWD/mnt {kind} ro,relatime,low_memory 0 0\" > fstab
             mount -a -T fstab
             mount -a -T fstab
             findmnt -n -o SOURCE,FSTYPE -t {shown} $PWD/mnt
             cmp tree/hello mnt/hello
             umount -a -t {shown}
             ! mountpoint -q mnt"
        );
        let outcome = images.run(&script).success();
        let line = format!("{} {shown}\n", images.path("plain.erofs").display());
        assert_eq!(outcome.text(), line);
    }
}

#[test]
fn automount_mounts_and_expires() {
    require!(possible() && need::fuse());
    let Some(automount) = need::tool("automount") else { return };
    let images = Images::new();
    // /sbin has another directory in the script.
    std::fs::copy(automount, images.path("automount")).unwrap();
    let script = "
        mount -t tmpfs tmpfs /run
        mkdir -p /run/auto /run/direct
        printf '%s\\n' '/run/auto /run/indirect.map' '/- /run/direct.map' > /run/master
        echo \"app -fstype=erofs.ferofs,ro :$PWD/plain.erofs\" > /run/indirect.map
        echo \"/run/direct/app -fstype=erofs.ferofs,ro :$PWD/plain.erofs\" > /run/direct.map
        # The process group of automount passes its mount points, so this script must not be in it.
        setsid ./automount --foreground --pid-file /run/automount.pid /run/master &
        until test \"$(grep -c '^/run/.*map .* autofs ' /proc/mounts)\" = 2; do sleep 0.05; done
        for round in 1 2; do
            # Files that are open keep both mounts while they are counted.
            exec 3< /run/auto/app/hello 4< /run/direct/app/hello
            cmp tree/hello - <&3
            cmp tree/hello - <&4
            test \"$(grep -c '/app fuse.ferofs ' /proc/mounts)\" = 2
            exec 3<&- 4<&-
            # Expires everything that is not in use. A second signal could reach automount before it is ready for it, and then ends it.
            [ $round = 2 ] || kill -USR1 \"$(cat /run/automount.pid)\"
            while [ $round = 1 ] && grep -q '/app fuse.ferofs ' /proc/mounts; do sleep 0.05; done
        done";
    images.run(script).success();
}

/// As systemd mounts a unit: the process that mounts is not in the automounter's process group. If
/// it starts the automount, both wait for ever.
#[test]
fn a_mount_on_an_automount_point_does_not_start_the_automount() {
    require!(possible() && need::fuse());
    let images = Images::new();
    for name in ["ferofs", "erofsfuse"] {
        std::os::unix::fs::symlink(ferofs_path(), images.path("links").join(name)).unwrap();
    }
    for mount in [
        "mount -t erofs plain.erofs mnt",
        "mount -t erofs.fuse plain.erofs mnt",
        "/sbin/mount.erofs plain.erofs mnt/ -t erofs",
        "/sbin/ferofs mount --kernel plain.erofs mnt",
        "/sbin/ferofs mount --fuse --pid-file pid plain.erofs mnt/.",
        "/sbin/erofsfuse plain.erofs mnt/",
        // Fails at what it looks at before it tries anything.
        "! /sbin/mount.erofs --reattach mnt/ 2>error; /sbin/ferofs mount plain.erofs mnt",
    ] {
        let mounted = images.mounted(&format!(
            "rm -f requests; mkfifo requests; exec 3<>requests
             setsid sleep 1000 3<&- & automounter=$!
             mount -i -t autofs -o fd=3,pgrp=$automounter,minproto=5,maxproto=5,direct automounter mnt
             {mount}
             cmp tree/hello mnt/hello; /sbin/ferofs umount mnt/; {mount}"
        ));
        let kinds: Vec<_> = mounted
            .lines()
            .filter_map(|line| line.split(" - ").nth(1)?.split(' ').next())
            .collect();
        assert!(
            matches!(kinds[..], ["autofs", "erofs" | "fuse.ferofs" | "fuse.erofsfuse"]),
            "{mount}: {mounted}"
        );
    }
}

/// As programs do that mount for containers: they open the FUSE device, mount, and pass the device
/// on.
#[test]
fn an_open_fuse_device_is_a_mount_point() {
    require!(possible() && need::fuse());
    let images = Images::new();
    std::os::unix::fs::symlink(ferofs_path(), images.path("links/ferofs")).unwrap();
    let mounted = images.mounted(
        "exec 3<>/dev/fuse
         mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 passed mnt
         /sbin/ferofs mount plain.erofs /dev/fd/3; exec 3<&-",
    );
    assert!(mounted.contains(" - fuse passed "), "{mounted}");
    let refused =
        images.run("exec 3<plain.erofs; /sbin/ferofs mount plain.erofs /dev/fd/3").failure(1);
    refused.says("not an open FUSE device");
}

#[test]
fn absolute_paths_need_no_current_directory() {
    require!(possible() && need::fuse());
    let images = Images::new();
    let mount =
        format!("{} mount --fuse \"$OLDPWD/plain.erofs\" \"$OLDPWD/mnt\"", ferofs_path().display());
    images.mounted(&format!("mkdir gone; cd gone; rmdir ../gone; {mount}; cd \"$OLDPWD\""));
}

#[test]
fn the_helper_attaches_loop_devices_itself() {
    require!(possible());
    let images = Images::new();
    let helper = |line: &str| images.mounted(&format!("/sbin/mount.erofs {line}"));
    let size = std::fs::metadata(images.path("plain.erofs")).unwrap().len();
    for line in [
        "plain.erofs mnt -o rw,loop",
        "behind.img mnt -o offset=1M",
        &format!("behind.img mnt -t erofs -o offset=1048576,sizelimit={size}"),
        "index.erofs mnt -o loop,device=data.img",
    ] {
        let mounted = helper(line);
        assert!(mounted.contains(" - erofs /dev/loop"), "{line}: {mounted}");
    }
    assert!(helper("-o device=data.img index.erofs mnt").contains(" - erofs "));
}

#[test]
fn the_helper_supports_fake_and_sloppy_and_reports_errors() {
    require!(possible());
    let images = Images::new();
    let run = |script: &str| {
        images.run(&format!("{script}\n! grep -q \" $PWD/mnt \" /proc/self/mountinfo"))
    };
    run("mount -f -t erofs plain.erofs mnt").success();
    run("! /sbin/mount.erofs -t erofs plain.erofs mnt -o nosuch").success();
    images
        .run("/sbin/mount.erofs -t erofs plain.erofs mnt -o nosuch")
        .failure(1)
        .says("Unknown parameter 'nosuch'");
    images.run("/sbin/mount.erofs plain.erofs nowhere").failure(1);
    images.run("/sbin/mount.erofs -t erofs behind.img mnt -o offset=1M,sizelimit=1024").failure(1);
    assert!(images.mounted("/sbin/mount.erofs -s plain.erofs mnt -o nosuch").contains(" - erofs "));
    assert_eq!(images.loops(), Vec::<PathBuf>::new());
}
