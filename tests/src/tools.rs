//! The programs that the tests start, and the Debian packages that contain them.
//!
//! `cargo xtask test` installs the programs of this table, and [`crate::need::tool`] accepts no
//! other name. A test in this file searches the sources of the tests for programs that are not in
//! the table.

/// A program and its package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tool {
    /// The name of the file, in PATH or in a directory of system tools.
    pub program: &'static str,
    /// Debian's package.
    pub package: &'static str,
}

const fn tool(program: &'static str, package: &'static str) -> Tool {
    Tool { program, package }
}

/// The programs that the tests start.
pub const TEST_TOOLS: &[Tool] = &[
    tool("automount", "autofs"),
    tool("casync", "casync"),
    tool("cc", "gcc"),
    tool("chromium", "chromium"),
    tool("cp", "coreutils"),
    tool("cpio", "cpio"),
    tool("dbus-run-session", "dbus-daemon"),
    tool("docker-registry", "docker-registry"),
    tool("fakeroot", "fakeroot"),
    tool("cmp", "diffutils"),
    tool("find", "findutils"),
    tool("findmnt", "util-linux"),
    tool("fusermount3", "fuse3"),
    tool("fsverity", "fsverity"),
    tool("getfattr", "attr"),
    tool("gzip", "gzip"),
    tool("ln", "coreutils"),
    tool("ls", "coreutils"),
    tool("losetup", "mount"),
    tool("make", "make"),
    tool("mkfifo", "coreutils"),
    tool("mkfs.exfat", "exfatprogs"),
    tool("mkfs.ext4", "e2fsprogs"),
    tool("mksquashfs", "squashfs-tools"),
    tool("mount", "mount"),
    tool("mount.exfat-fuse", "exfat-fuse"),
    tool("mount.fuse3", "fuse3"),
    tool("nginx", "nginx-light"),
    tool("openssl", "openssl"),
    tool("pkg-config", "pkgconf"),
    tool("prlimit", "util-linux"),
    tool("pseudo", "pseudo"),
    tool("rauc", "rauc"),
    tool("readelf", "binutils"),
    tool("script", "bsdutils"),
    tool("setfattr", "attr"),
    tool("setpriv", "util-linux"),
    tool("sha256sum", "coreutils"),
    tool("sh", "dash"),
    tool("skopeo", "skopeo"),
    tool("sleep", "coreutils"),
    tool("strace", "strace"),
    tool("swupdate", "swupdate"),
    tool("systemd-dissect", "systemd-container"),
    tool("tar", "tar"),
    tool("time", "time"),
    tool("timeout", "coreutils"),
    tool("umount", "mount"),
    tool("unshare", "util-linux"),
    tool("valgrind", "valgrind"),
    tool("veritysetup", "cryptsetup-bin"),
    tool("xz", "xz-utils"),
    tool("zstd", "zstd"),
    tool("mkfs.erofs", EROFS_UTILS),
    tool("fsck.erofs", EROFS_UTILS),
];

/// The package with the reference implementation of the EROFS tools.
pub const EROFS_UTILS: &str = "erofs-utils";

/// Whether the table has `program`.
pub fn is_known(program: &str) -> bool {
    TEST_TOOLS.iter().any(|tool| tool.program == program)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Source code that starts or looks for a program: the name of the program follows.
    const STARTS: [&str; 5] =
        ["Run::new(\"", "Run::limited(\"", "Command::new(\"", "need::tool(\"", "programs(\""];

    fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }

    #[test]
    fn every_program_that_a_test_starts_is_in_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        for dir in ["src", "tests"] {
            sources(&root.join(dir), &mut files);
        }
        files.retain(|file| !file.ends_with("src/tools.rs"));
        let mut count = 0;
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for start in STARTS {
                for rest in text.split(start).skip(1) {
                    let program = rest.split('"').next().unwrap();
                    // A name with "/" is a script or program that the test itself has made.
                    if !program.contains('/') && program != "." {
                        assert!(is_known(program), "{}: {program}", file.display());
                        count += 1;
                    }
                }
            }
        }
        assert!(count > 20, "{count}: the sources were not found");
    }
}
