//! The second version of an image, when the first one is on this machine: what is fetched of it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use ferofs_test_server::{Fault, Rule, Server};
use ferofs_tests::{Content, Mount, Rng, ferofs_path, need};

use super::{assert_same_files, field_number, isolated};
use crate::common::fixture::{Fixture, counter};

const BLOCK: usize = 4096;

/// Two versions of a tree, sealed images of them, and a server with both.
struct Versions {
    fixture: Fixture,
    server: Server,
    images: [PathBuf; 2],
    roots: [String; 2],
}

impl Versions {
    /// 300 files of 12 MB, of which a few change, come and go.
    fn new(build: &[&str]) -> Self {
        let (fixture, mut rng) = (Fixture::empty(), Rng::new(11));
        let path =
            |number: u64| fixture.source().join(format!("folder{}/file{number}", number % 10));
        let write = |number: u64, rng: &mut Rng| {
            std::fs::create_dir_all(path(number).parent().unwrap()).unwrap();
            let len = 1 + rng.below(80_000) as usize;
            let content = if number.is_multiple_of(3) { Content::Text } else { Content::Noise };
            std::fs::write(path(number), content.bytes(len, rng)).unwrap();
        };
        (0..300).for_each(|number| write(number, &mut rng));
        let server = Server::start().unwrap();
        let seal = |name: &str| {
            let options: Vec<&OsStr> = build.iter().map(OsStr::new).collect();
            let sealed = fixture.build_sealed(&format!("{name}.erofs"), &options);
            server.put(&format!("/{name}"), std::fs::read(&sealed.0).unwrap());
            sealed
        };
        let old = seal("old");
        (0..4).for_each(|number| write(37 * number + 5, &mut rng));
        write(300, &mut rng);
        std::fs::remove_file(path(120)).unwrap();
        let new = seal("new");
        Self { images: [old.0, new.0], roots: [old.1, new.1], fixture, server }
    }

    /// Fails if more than the changed blocks, 10 % more, and the hash tree were fetched, or if this
    /// is not much less than all.
    fn assert_only_changes_were_fetched(&self) {
        let fetched = self.server.counts().bytes;
        let [old, new] = self.images.each_ref().map(|image| std::fs::read(image).unwrap());
        let known: HashSet<&[u8]> = old.chunks(BLOCK).collect();
        let changed = new.chunks(BLOCK).filter(|block| !known.contains(block)).count() * BLOCK;
        let (changed, all) = (changed as u64, new.len() as u64);
        // The tree has a digest of 32 bytes for each block.
        assert!(
            fetched <= changed + changed / 10 + all / 100,
            "{fetched} of {all}: {changed} have changed"
        );
        assert!(changed < all / 4, "{changed} of {all} have changed");
    }

    fn pull(&self, version: usize, target: &Path, with: &[&OsStr]) -> u64 {
        let location = self.server.url(["/old", "/new"][version]);
        let run = isolated(&self.fixture).args([
            "pull",
            "--json",
            "--roothash",
            &self.roots[version],
            &location,
        ]);
        let stdout = run.arg(target).args(with).success().stdout;
        assert_same_files(&self.images[version], target);
        field_number(&stdout, "reused")
    }
}

#[test]
fn a_pull_copies_what_files_and_the_cache_have() {
    for build in [&["-z", "lz4"] as &[&str], &[]] {
        let versions = Versions::new(build);
        let (target, other) = (versions.fixture.path("pulled"), versions.fixture.path("other"));
        assert_eq!(versions.pull(0, &target, &[]), 0);
        versions.server.reset();
        // The file that is replaced.
        let len = std::fs::metadata(&versions.images[1]).unwrap().len();
        assert!(versions.pull(1, &target, &[]) > len / 2);
        versions.assert_only_changes_were_fetched();
        versions.server.reset();
        let reuse = ["--reuse".as_ref(), versions.images[0].as_os_str()];
        assert!(versions.pull(1, &other, &reuse) > len / 2);
        versions.assert_only_changes_were_fetched();
        std::fs::remove_file(&other).unwrap();

        let location = versions.server.url("/old");
        let check = ["check", "--deep", "--roothash", &versions.roots[0], &location];
        isolated(&versions.fixture).args(check).success();
        versions.server.reset();
        assert!(versions.pull(1, &other, &[]) > len / 2);
        versions.assert_only_changes_were_fetched();
    }
}

#[test]
fn a_pull_that_fails_leaves_nothing() {
    let versions = Versions::new(&[]);
    let (folder, missing) =
        (versions.fixture.directory("folder"), versions.fixture.path("missing"));
    let pull = |reuse: &Path| {
        let location = versions.server.url("/new");
        let run = isolated(&versions.fixture).args([
            "pull",
            "--timeout",
            "1",
            "--roothash",
            &versions.roots[1],
        ]);
        let run = run.arg(&location).arg(folder.join("pulled")).arg("--reuse").arg(reuse);
        let outcome = run.failure(1);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "{}", outcome.stderr);
        outcome.stderr
    };
    let name = missing.display();
    assert_eq!(
        pull(&missing),
        format!("ferofs: {name}: open: No such file or directory (os error 2)\n")
    );
    // The tree does not arrive.
    versions.server.add(Rule::new(Fault::Status(503)).after(2));
    assert!(pull(&versions.images[0]).contains("503"));
}

#[test]
fn a_mount_copies_what_a_file_has_that_the_fetcher_may_not_open() {
    require!(need::fuse());
    let versions = Versions::new(&["-z", "lz4"]);
    let (dir, cache) = (versions.fixture.directory("dir"), versions.fixture.path("cache"));
    let options = [
        "--roothash".as_ref(),
        OsStr::new(&versions.roots[1]),
        "--cache-dir".as_ref(),
        cache.as_os_str(),
        "--reuse".as_ref(),
        versions.images[0].as_os_str(),
    ];
    let location = versions.server.url("/new");
    let mount = Mount::fuse_with(ferofs_path(), &options, Path::new(&location), &dir).unwrap();
    let compare = || {
        for folder in std::fs::read_dir(versions.fixture.source()).unwrap() {
            for file in std::fs::read_dir(folder.unwrap().path()).unwrap() {
                let source = file.unwrap().path();
                let within = source.strip_prefix(versions.fixture.source()).unwrap();
                assert_same_files(&source, &mount.path().join(within));
            }
        }
    };
    compare();
    // What was read before the index of the file was complete was fetched.
    let (fetched, all) =
        (versions.server.counts().bytes, std::fs::metadata(&versions.images[1]).unwrap().len());
    assert!(fetched < all / 2, "{fetched} of {all}");
    let reused = counter(mount.path(), "fetcher reused bytes");
    assert!(reused > all / 2, "{reused} of {all}");
    assert_eq!(mount.unmount().unwrap().0, Some(0));
}
