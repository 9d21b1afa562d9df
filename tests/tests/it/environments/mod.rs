//! The same commands in the environments in which people run ferofs: build, check, mount, extract
//! and update one tree, and compare all of it each time. `commands.sh` has the commands; the table
//! below has the environments. Where an environment cannot do something, the table has the message
//! that users must see.
//!
//! Each test has mount namespaces of its own: this machine's mounts and directories do not change.
//!
//! Trees with owners that a user namespace does not map: a build must not take "nobody" for them
//! silently.

mod file_systems;

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;

use ferofs_tests::{Outcome, ferofs_path, need, run, scratch, scratch_in_memory, tree};

use crate::common::fixture::{chmod, copy, write};

/// The commands, as the argument of `sh -c`: an ordinary user may not be able to read this
/// checkout.
const COMMANDS: &str = include_str!("commands.sh");
/// Functions for the scripts of the table. `$dir` is a temporary directory with the trees and a
/// copy of ferofs.
const FUNCTIONS: &str = "
    # Makes /dev/fuse usable for all users, as udev's rules do on many machines.
    fuse_for_all() { mknod -m 666 \"$dir/fuse\" c 10 229 && mount --bind \"$dir/fuse\" /dev/fuse; }
    user='setpriv --reuid=65534 --regid=65534 --clear-groups --'
    ";
/// The user and group of `$user`: nobody.
const NOBODY: u32 = 65534;
/// All steps of `commands.sh` that every environment should do.
const STEPS: &[&str] = &["build", "check", "diff", "mount", "fuse", "extract", "patch"];
/// A preload layer changes what a command sees of a tree, not what a mount shows.
const STEPS_WITHOUT_MOUNTS: &[&str] = &["build", "check", "diff", "extract", "patch"];

struct Environment {
    /// A script of sh(1) that makes the environment and ends with the commands in it, `"$@"`. It
    /// runs as root.
    enter: &'static str,
    /// The tree: `root` has everything, `user` what an ordinary user can read and restore, and
    /// belongs to nobody.
    tree: &'static str,
    /// The steps to run.
    steps: &'static [&'static str],
    /// The steps that fail, each with a part of its message.
    failures: &'static [(&'static str, &'static str)],
    /// The programs that it needs.
    tools: &'static [&'static str],
}

/// The environment of root, without a difference to this machine.
const ROOT: Environment =
    Environment { enter: "\"$@\"", tree: "root", steps: STEPS, failures: &[], tools: &[] };
/// The environment of an ordinary user.
const USER: Environment = Environment { enter: "fuse_for_all; $user \"$@\"", tree: "user", ..ROOT };

/// A test for each environment.
macro_rules! environments {
    ($($(#[$attribute:meta])* $name:ident: $environment:expr;)*) => {
        $(
            #[test]
            $(#[$attribute])*
            fn $name() {
                run(stringify!($name), &$environment);
            }
        )*
    };
}

environments! {
    nothing_special: ROOT;
    an_ordinary_user: USER;
    a_user_namespace: Environment {
        // The users of the access control lists do not exist in it.
        enter: "rm -r $dir/user/attrs/acls $dir/user-2/attrs/acls
            fuse_for_all; $user unshare --user --map-root-user --mount \"$@\"",
        ..USER
    };
    no_proc: Environment {
        enter: "mount -t tmpfs none /proc; \"$@\"",
        // Without /proc, Linux gives no way to set attributes of special files and links.
        // Extraction names each that is lost.
        failures: &[
            ("mount", "is /proc mounted?"),
            ("fuse", "Is /proc mounted?"),
            ("extract", "need /proc"),
            ("patch", "need /proc"),
        ],
        ..ROOT
    };
    no_dev_fuse: Environment {
        enter: "mkdir $dir/dev; mount -t tmpfs dev $dir/dev; mkdir $dir/dev/shm; mount --rbind /dev/shm $dir/dev/shm
            cp -a /dev/null /dev/zero /dev/urandom /dev/loop* $dir/dev; mount --rbind $dir/dev /dev; \"$@\"",
        failures: &[("fuse", "/dev/fuse")],
        ..ROOT
    };
    no_fusermount3: Environment {
        enter: "fuse_for_all; mkdir $dir/upper $dir/work; mknod $dir/upper/fusermount c 0 0; mknod $dir/upper/fusermount3 c 0 0
            mount -t overlay none -o lowerdir=/usr/bin,upperdir=$dir/upper,workdir=$dir/work /usr/bin; $user \"$@\"",
        failures: &[("mount", "fusermount3"), ("fuse", "fusermount3")],
        ..USER
    };
    a_chroot_that_is_no_mount: Environment {
        enter: "for name in usr bin sbin lib lib64 etc dev proc sys; do
                [ -e /$name ] && mkdir -p $dir/system/$name && mount --rbind /$name $dir/system/$name
            done
            mkdir -p $dir/system$dir; mount --rbind $dir $dir/system$dir; chroot $dir/system \"$@\"",
        ..ROOT
    };
    a_directory_of_root: Environment { enter: "chmod 700 $dir; \"$@\"", ..ROOT };
    // The names are relative to a working directory whose path the user cannot walk.
    a_user_below_a_directory_of_root: Environment {
        enter: "mkdir -p -m 700 $dir/private/work; mv $dir/user $dir/user-2 $dir/out $dir/private/work; chmod 700 $dir/private
            cd $dir/private/work; chown 65534:65534 .; fuse_for_all
            commands=$3; ferofs=$5; shift 7; $user sh -c \"$commands\" sh \"$ferofs\" . out \"$@\"",
        failures: &[("mount", "out/mnt: Permission denied"), ("fuse", "out/mnt: Permission denied")],
        ..USER
    };
    // As on NFS with root_squash.
    a_root_that_may_not_change_owners: Environment {
        enter: "setpriv --bounding-set=-chown --inh-caps=-chown \"$@\"",
        failures: &[("extract", "chown: Operation not permitted"), ("patch", "chown: Operation not permitted")],
        ..ROOT
    };
    a_read_only_file_system: Environment {
        enter: "mount --bind $dir $dir; mount -o remount,bind,ro $dir; mount -t tmpfs out $dir/out
            mount -o remount,bind,ro /; \"$@\"",
        steps: &["build-here", "build", "check", "diff", "mount", "fuse", "extract", "patch"],
        failures: &[("build-here", "create a file in this directory: Read-only file system")],
        ..ROOT
    };
    eight_open_files: Environment {
        // Only for ferofs: the shell of the script needs more.
        enter: "mv $dir/ferofs $dir/program; printf '#!/bin/sh\\nulimit -n 8; exec %s/program \"$@\"' $dir > $dir/ferofs
            chmod 755 $dir/ferofs; \"$@\"",
        // The build says what it needs; there is no image for the other steps.
        steps: &["build"],
        failures: &[("build", "raise the limit: ulimit -n")],
        ..ROOT
    };
    // A place for an automount: its script starts autofs, and the steps work below its directory.
    a_strict_umask: Environment { enter: "umask 077; \"$@\"", ..ROOT };
    no_language: Environment { enter: "env -u LANG -u LC_ALL -u LC_CTYPE \"$@\"", ..ROOT };
    a_language_with_another_encoding: Environment { enter: "LC_ALL=de_DE.ISO-8859-1 \"$@\"", ..ROOT };
    fakeroot: Environment { enter: "$user fakeroot sh -c \"$fake\" sh \"$@\"", ..FAKE };
    pseudo: Environment {
        enter: "export PSEUDO_PREFIX=/usr PSEUDO_LOCALSTATEDIR=$dir/out/pseudo; mkdir $dir/out/pseudo; chmod 777 $dir/out/pseudo
            $user pseudo sh -c \"$fake\" sh \"$@\"",
        tools: &["pseudo"],
        ..FAKE
    };
}

/// Preload layers. The script copies the tree of the user, and gives files owners, devices and
/// attributes that only root can give.
const FAKE: Environment =
    Environment { tree: "out/fake", steps: STEPS_WITHOUT_MOUNTS, tools: &["fakeroot"], ..ROOT };

/// `$fake` of [`FUNCTIONS`].
const PREPARE_FAKE: &str = "fake='set -e
    cd '$dir'/out
    cp -a ../user fake; mkdir fake/only-root; cd fake/only-root
    mknod null c 1 3; mknod disk b 259 70000; echo a > owned; chown 123:456 owned
    mkdir dir; chown 70000:80000 dir; ln -s target link; chown -h 5:6 link; echo b > suid; chown 7:8 suid; chmod 6755 suid
    cd ../..; cp -a fake fake-2; rm fake-2/only-root/null; chown 9:10 fake-2/only-root/owned; mknod fake-2/only-root/zero c 1 5
    exec \"$@\"'
    ";

/// Runs the steps in the environment, and compares what they print.
fn run(name: &str, environment: &Environment) {
    if need::is_quick() {
        need::lacks(need::WITHOUT_QUICK);
        return;
    }
    let tools = ["unshare", "setpriv", "find", "getfattr", "tar"].iter().chain(environment.tools);
    if !need::root()
        || !need::fuse()
        || tools.into_iter().any(|tool| need::tool(tool).is_none())
        || environment.enter.contains("--user ") && !need::user_namespaces()
    {
        return;
    }
    let dir = scratch_in_memory();
    prepare(dir.path(), environment.tree == "root");
    let out = dir.path().join("out");
    let script = format!("dir=$1; shift\n{FUNCTIONS}\n{PREPARE_FAKE}\n{}", environment.enter);
    let outcome = run!(
        "unshare --mount --propagation private sh -c",
        &script,
        "sh",
        dir.path(),
        "sh",
        "-c",
        COMMANDS,
        "sh",
        dir.path().join("ferofs"),
        dir.path(),
        &out,
        environment.tree
    )
    .args(environment.steps)
    .run();
    let stdout = outcome.text();
    let lines: Vec<&str> = stdout.lines().collect();
    let wrong = environment.steps.iter().filter(|step| {
        let failure = environment.failures.iter().find(|(failing, _)| failing == *step);
        let line = lines.iter().find_map(|line| line.strip_prefix(*step)?.strip_prefix(": "));
        !line.is_some_and(|line| {
            failure.map_or(line == "ok", |(_, message)| is_failure(line, message))
        })
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(
        wrong.is_empty(),
        "{name}: {wrong:?} differ from the table:\n{stdout}{}",
        outcome.stderr
    );
}

/// Whether the step failed as documented: an exit code of an error, and one message of ferofs with
/// this text.
fn is_failure(line: &str, message: &str) -> bool {
    let documented = ["1: ferofs: ", "2: ferofs: "].iter().any(|start| line.starts_with(start));
    documented && line.contains(message) && !line.contains("panicked")
}

/// Makes the tree, a changed copy, and a copy of ferofs in `dir`.
fn prepare(dir: &Path, root: bool) {
    let name = if root { "root" } else { "user" };
    let (source, second) = (dir.join(name), dir.join(format!("{name}-2")));
    fs::create_dir(&source).unwrap();
    tree::create(&source, &tree::Options { root, ..tree::Options::small() }).unwrap();
    copy(&source, &second);
    fs::write(second.join("files/text/4097"), "changed").unwrap();
    fs::rename(second.join("sparse"), second.join("files/moved")).unwrap();
    write(&second.join("new/file"), "new".repeat(9000));
    fs::copy(ferofs_path(), dir.join("ferofs")).unwrap();
    fs::create_dir(dir.join("out")).unwrap();
    chmod(dir, 0o755);
    if !root {
        // Without root, extraction does not set the bits for other users and groups.
        let script = "chown -hR 65534:65534 \"$@\"; chmod -R ug-s \"$@\"";
        run!("sh -c", script, "sh", &source, &second).success();
        chown(dir.join("out"), Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// Builds `tree` as root of a namespace that maps this user only.
fn build(dir: &Path, options: &[&str]) -> Outcome {
    let image = dir.join("image");
    let _ = fs::remove_file(&image);
    let command = run!("unshare --user --map-root-user", ferofs_path());
    command.args(["build", "-q"]).args(options).arg(dir.join("tree")).arg(image).run()
}

#[test]
fn a_build_tells_of_owners_that_a_user_namespace_does_not_map() {
    require!(need::user_namespaces());
    let dir = scratch();
    let file = dir.path().join("tree/file");
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(&file, "content").unwrap();
    assert_eq!(build(dir.path(), &[]).success().stderr, "");
    chown(&file, Some(12345), Some(0)).unwrap();
    build(dir.path(), &[])
        .success()
        .says("tree/file: owner 65534, group 0: this user namespace does not map");
    assert_ne!(build(dir.path(), &["--strict"]).code, 0);
    assert_eq!(build(dir.path(), &["--all-root"]).success().stderr, "");
}

#[test]
fn a_build_refuses_lists_that_a_user_namespace_does_not_map() {
    require!(need::user_namespaces());
    let dir = scratch();
    let file = dir.path().join("tree/file");
    fs::create_dir(dir.path().join("tree")).unwrap();
    fs::write(&file, "content").unwrap();
    // Version 2; the owner, user 12345, the group, the mask and others, each with its tag and
    // permissions.
    let entries = [
        (0x01u16, 6u16, u32::MAX),
        (0x02, 4, 12345),
        (0x04, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 4, u32::MAX),
    ];
    let entry = |(tag, bits, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [2u32.to_le_bytes().to_vec(), entries.map(entry).concat()].concat();
    rustix::fs::setxattr(&file, "system.posix_acl_access", &acl, rustix::fs::XattrFlags::empty())
        .unwrap();
    let refused = build(dir.path(), &[]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    refused.says("tree/file: its ACL names users or groups");
    build(dir.path(), &["--no-xattrs"]).success();
}
