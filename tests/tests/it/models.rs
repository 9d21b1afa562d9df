//! Statements for any tree: an image of each form shows it, and what changes the image shows the
//! changed tree. The trees are random, and the same in each run; `cargo xtask fuzz options` tries
//! others, with random options.

use std::fs;
use std::path::{Path, PathBuf};

use ferofs_tests::{Model, Mount, Rng, compare, ferofs, ferofs_path, need};

use crate::common::erofs_utils::assert_valid;
use crate::common::fixture::{Fixture, same};

/// Options of `ferofs build`, one set for each way to store data and metadata.
const FORMS: [&str; 16] = [
    "-z none",
    "-b 1024 --chunk-size 4096 --inodes extended",
    "-z lz4",
    "-z lz4 -b 512 -x 0 --xattr-prefix=user.num",
    "-z lz4hc -C 64K -E legacy-compress",
    "-z lzma,1 -C 64K",
    "-z zstd -C 64K -E ^xattr-name-filter",
    "-z deflate -C 64K",
    "-z lz4 -C 16K -E fragments",
    "-z lz4 -E ztailpacking,dedupe",
    "-z zstd -C 64K -E 48bit,holes",
    "-z lzma,1 -C 1M -E all-fragments,ztailpacking",
    // Patches continue the metabox of these.
    "-z lz4 --for-updates -E 48bit -m 64K --compress-directories",
    "-z lzma,1 -C 64K -E 48bit -m 4K",
    "-z zstd -C 64K -E 48bit,all-fragments -m 4K",
    "--preset backup",
];
const FIXED: [&str; 4] = ["-T", "2000000000", "-U", "c3ba3bd2-0e3c-4c6e-9a3f-0d0f3a5f6e71"];

/// A random tree, and the random numbers that change it.
struct Tree {
    fixture: Fixture,
    model: Model,
    rng: Rng,
}

impl Tree {
    /// Calls `test` for a tree and a form.
    fn with_each_form(test: impl Fn(Self, &str)) {
        for (number, form) in need::sample(&FORMS).enumerate() {
            eprintln!("{form}");
            let mut rng = Rng::new(number as u64);
            let model = Model::medium(&mut rng);
            test(Self { fixture: Fixture::empty(), model, rng }, form);
        }
    }

    /// Writes `model` to a new directory.
    fn write(&self, name: &str, model: &Model) -> PathBuf {
        let dir = self.fixture.directory(name);
        model.write_to(&dir).unwrap();
        dir
    }

    /// Changes the tree, and writes it to a new directory.
    fn update(&mut self, name: &str) -> PathBuf {
        self.model = self.model.changed(12, &mut self.rng);
        self.write(name, &self.model)
    }

    fn build(&self, name: &str, form: &str, source: &Path) -> PathBuf {
        let options = FIXED.into_iter().chain(form.split(' ').filter(|option| !option.is_empty()));
        self.fixture.build_from(source, name, options)
    }

    /// An image of the tree, and the directory that it was built from.
    fn built(&self, form: &str) -> (PathBuf, PathBuf) {
        let dir = self.write("first", &self.model);
        (self.build("image", form, &dir), dir)
    }

    /// Fails unless checkers accept the image, and Linux and FUSE show `tree`.
    fn assert_shows(&self, image: &Path, tree: &Path) {
        assert_valid(image);
        let dir = self.fixture.path("shown");
        fs::create_dir_all(&dir).unwrap();
        // A copy: Linux can use a loop device again that holds older blocks of the same file.
        let copy = self.fixture.path("copy");
        fs::copy(image, &copy).unwrap();
        self.assert_mounted(&copy, &[], tree);
        if need::kernel_erofs() {
            assert_same(tree, Mount::kernel(&copy, &dir).unwrap());
        }
        fs::remove_file(copy).unwrap();
    }

    fn assert_extracted(&self, image: &Path, tree: &Path) {
        let extracted = self.fixture.extract(image, "extracted");
        compare(tree, &extracted, &same()).unwrap().assert_same();
        fs::remove_dir_all(extracted).unwrap();
    }

    /// Fails unless FUSE shows `tree` with these patches of the image.
    fn assert_mounted(&self, image: &Path, patches: &[&Path], tree: &Path) {
        require!(need::fuse());
        let dir = self.fixture.path("shown");
        let over: Vec<_> =
            patches.iter().flat_map(|patch| ["--patch".as_ref(), patch.as_os_str()]).collect();
        assert_same(tree, Mount::fuse_with(ferofs_path(), &over, image, &dir).unwrap());
    }
}

fn assert_same(tree: &Path, mount: Mount) {
    compare(tree, mount.path(), &same()).unwrap().assert_same();
    mount.unmount().unwrap();
}

#[test]
fn an_image_shows_its_tree() {
    Tree::with_each_form(|mut tree, form| {
        let (image, dir) = tree.built(form);
        tree.assert_shows(&image, &dir);
        tree.assert_extracted(&image, &dir);
        assert_eq!(ferofs!("diff", &image, &dir).success().stdout, b"");
        // The image as a source. Chunks of zeroes become holes, which the directory may not have.
        let expected = fs::read(tree.build("expected", "-z lz4", &dir)).unwrap();
        let again = tree.build("again", "-z lz4 --verify --workers 3", &image);
        let is_same = fs::read(again).unwrap() == expected;
        assert!(is_same || form.contains("--chunk-size"), "{form}: another image");
        // An archive as the source, which has no sockets.
        let archive = tree.fixture.path("archive");
        ferofs!("extract -q --tar", &archive, &image).success();
        tree.model.drop_sockets();
        let archived = tree.write("archived", &tree.model);
        tree.assert_extracted(&tree.build("of-archive", form, &archive), &archived);
    });
}

#[test]
fn a_patch_shows_the_new_tree_and_a_rollback_the_old_one() {
    Tree::with_each_form(|mut tree, form| {
        let (image, first) = tree.built(form);
        let path = |name: &str| tree.fixture.path(name);
        let [base, one, two, squashed] = ["base", "one", "two", "squashed"].map(path);
        fs::copy(&image, &base).unwrap();
        let mut trees = vec![first];
        for (patch, name) in [(&one, "second"), (&two, "third")] {
            let next = tree.update(name);
            ferofs!("patch create --verify -o", patch, &image, &next).success();
            ferofs!("patch apply", &image, patch).success();
            tree.assert_shows(&image, &next);
            trees.push(next);
        }
        tree.assert_mounted(&base, &[&one, &two], &trees[2]);
        ferofs!("patch squash", &image, &squashed).success();
        tree.assert_shows(&squashed, &trees[2]);
        let states = ferofs!("patch log --json", &squashed).success().text();
        assert_eq!(states.matches("\"number\"").count(), 1);
        for (state, shown) in [(1, &trees[1]), (0, &trees[0])] {
            ferofs!("patch rollback --to", state.to_string(), &image).success();
            tree.assert_shows(&image, shown);
        }
    });
}

#[test]
fn an_added_tree_is_laid_over_the_old_one() {
    Tree::with_each_form(|mut tree, form| {
        let (image, first) = tree.built(form);
        let upper = tree.model.addition(&mut tree.rng);
        let added = tree.write("upper", &upper);
        tree.model = tree.model.overlaid(&upper);
        let merged = tree.write("merged", &tree.model);
        ferofs!("patch add --verify", &image, &added).success();
        tree.assert_shows(&image, &merged);
        assert_eq!(ferofs!("patch add --json", &image, &added).success().stdout, b"null\n");
        ferofs!("patch rollback", &image).success();
        tree.assert_shows(&image, &first);
    });
}

#[test]
fn an_image_like_an_earlier_one_shows_its_tree() {
    Tree::with_each_form(|mut tree, form| {
        let (old, _) = tree.built(form);
        let next = tree.update("second");
        if form.contains("--chunk-size") {
            return;
        }
        let like = format!("{form} --verify --like {}", old.display());
        let (new, again) = (tree.build("new", &like, &next), tree.build("again", &like, &next));
        assert!(fs::read(&new).unwrap() == fs::read(again).unwrap(), "{form}: other bytes");
        tree.assert_shows(&new, &next);
        let [delta, out] = ["delta", "out"].map(|name| tree.fixture.path(name));
        ferofs!("delta create -o", &delta, &old, &new).success();
        ferofs!("delta apply", &old, &delta, &out).success();
        assert!(fs::read(&out).unwrap() == fs::read(&new).unwrap(), "{form}: a delta");
    });
}
