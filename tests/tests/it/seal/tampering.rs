//! Random changes of sealed images: each read gives the right bytes or an error.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ferofs_tests::{Mount, Rng, ferofs, need};

use crate::common::fixture::{Fixture, full};

/// Files of different layouts: inline, compressed, not compressible, and in fragments.
fn fixture() -> (Fixture, Vec<(PathBuf, Vec<u8>)>) {
    let fixture = Fixture::empty();
    let mut files = Vec::new();
    for number in 0..12_u64 {
        let mut content = format!("file {number} ").repeat(1 << number).into_bytes();
        if number % 3 == 0 {
            Rng::new(number).fill(&mut content);
        }
        let path = PathBuf::from(format!("dir{}/file{number}", number % 4));
        let file = fixture.source().join(&path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, &content).unwrap();
        files.push((path, content));
    }
    (fixture, files)
}

/// A sealed image as its readers find it.
struct Sealed {
    image: Vec<u8>,
    /// Bytes of the image before its tree, if the tree follows it.
    image_len: usize,
    /// The file with the tree, if it does not follow the image.
    tree: Option<Vec<u8>>,
    /// The file with the root hash.
    root: Vec<u8>,
}

/// The files of a changed [`Sealed`].
struct Paths {
    image: PathBuf,
    tree: PathBuf,
    root: PathBuf,
}

impl Sealed {
    fn new(fixture: &Fixture, beside: bool) -> Self {
        let image = fixture.build("image", ["--compress", "lz4", "-E", "fragments"]);
        let image_len = fs::metadata(&image).unwrap().len() as usize;
        let (tree, root) = (fixture.path("image.tree"), fixture.path("image.root"));
        let mut format = ferofs!("verity format --roothash-file", &root, &image);
        if beside {
            format = format.arg("--hash-file").arg(&tree);
        }
        format.success();
        let tree = beside.then(|| fs::read(tree).unwrap());
        Self { image: fs::read(&image).unwrap(), image_len, tree, root: fs::read(root).unwrap() }
    }

    /// Writes the files with one to three changed bits in the image, the tree with its superblock,
    /// or the root hash.
    fn write_changed(&self, rng: &mut Rng, paths: &Paths) {
        let (mut image, mut tree, mut root) =
            (self.image.clone(), self.tree.clone(), self.root.clone());
        for _ in 0..=rng.below(3) {
            // As often the tree and its superblock as the image, which is larger; the root hash
            // sometimes.
            let part = match (rng.below(20), &mut tree) {
                (0, _) => &mut root[..],
                (1..10, _) => &mut image[..self.image_len],
                (_, Some(tree)) => &mut tree[..],
                (_, None) => &mut image[self.image_len..],
            };
            let at = rng.below(part.len() as u64) as usize;
            part[at] ^= 1 << rng.below(8);
        }
        fs::write(&paths.image, image).unwrap();
        fs::write(&paths.tree, tree.unwrap_or_default()).unwrap();
        fs::write(&paths.root, root).unwrap();
    }
}

#[test]
fn changed_bytes_are_never_returned() {
    let (fixture, files) = fixture();
    let right: Vec<u8> = files.iter().flat_map(|(_, content)| content.clone()).collect();
    let names: Vec<&PathBuf> = files.iter().map(|(path, _)| path).collect();
    let [image, tree, root] =
        ["changed", "changed-tree", "changed-root"].map(|name| fixture.path(name));
    let paths = Paths { image, tree, root };
    let sealed = [Sealed::new(&fixture, false), Sealed::new(&fixture, true)];
    let mut rng = Rng::new(1);
    let (mut intact, mut failed, mut fuse) = (0, 0, FuseCounts::default());
    for round in 0..if full() { 10_000 } else { 200 } {
        let sealed = &sealed[round % 2];
        sealed.write_changed(&mut rng, &paths);
        // A root hash that is not text is a wrong argument.
        let root = String::from_utf8_lossy(&fs::read(&paths.root).unwrap()).replace('\0', "?");
        let mut cat = ferofs!("cat --roothash", &root);
        if sealed.tree.is_some() {
            cat = cat.arg("--hash-file").arg(&paths.tree);
        }
        let outcome = cat.arg(&paths.image).args(&names).run();
        assert!(right.starts_with(&outcome.stdout), "round {round}: wrong bytes");
        match outcome.code {
            0 => {
                assert!(outcome.stdout == right, "round {round}: bytes are missing");
                intact += 1;
            }
            2 if root.parse::<Hex>().is_err() => failed += 1,
            _ => {
                assert!(outcome.has_error_message(), "round {round}: {}", outcome.stderr);
                failed += 1;
            }
        }
        if (full() || round % 10 == 0) && need::fuse() {
            read_through_fuse(&fixture, &paths, sealed.tree.is_some(), &files, round, &mut fuse);
        }
    }
    println!("cat: {intact} intact, {failed} failed; FUSE: {fuse:?}");
    assert!(intact > 10 && failed > 10, "{intact} intact, {failed} failed");
    let FuseCounts { unmounted, right, failed } = fuse;
    assert!(!need::fuse() || (unmounted > 0 && right > 0 && failed > 0), "{fuse:?}");
}

/// A text that a root hash can have.
struct Hex;

impl std::str::FromStr for Hex {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_hash =
            matches!(text.len(), 64 | 128) && text.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_hash.then_some(Self).ok_or(())
    }
}

/// What happened to changed images through FUSE.
#[derive(Clone, Copy, Debug, Default)]
struct FuseCounts {
    /// Images that could not be mounted.
    unmounted: u32,
    /// Files that were read completely, with the right bytes.
    right: u32,
    /// Files whose read failed.
    failed: u32,
}

fn read_through_fuse(
    fixture: &Fixture,
    paths: &Paths,
    has_tree: bool,
    files: &[(PathBuf, Vec<u8>)],
    round: usize,
    counts: &mut FuseCounts,
) {
    let dir = fixture.path("mounted");
    fs::create_dir_all(&dir).unwrap();
    let mut options = format!("verity.roothashfile={}", paths.root.display());
    if has_tree {
        options += &format!(",verity.hashdevice={}", paths.tree.display());
    }
    let options = ["-o".as_ref(), std::ffi::OsStr::from_bytes(options.as_bytes())];
    // A mount whose superblock, root directory or root hash is changed fails.
    let Ok(mount) =
        Mount::fuse_with(ferofs_tests::run::ferofs_path(), &options, &paths.image, &dir)
    else {
        counts.unmounted += 1;
        return;
    };
    for (path, content) in files {
        match fs::read(dir.join(path)) {
            Ok(read) => {
                assert!(read == *content, "round {round}: {}: wrong bytes", path.display());
                counts.right += 1;
            }
            Err(_) => counts.failed += 1,
        }
    }
    mount.unmount().unwrap();
}

#[test]
fn errors_name_the_image_and_the_file() {
    let (fixture, _) = fixture();
    let image = fixture.build("image", ["-z", "none"]);
    let root = ferofs!("verity format", &image).success().stdout;
    let root = String::from_utf8(root).unwrap().trim().to_owned();
    let mut bytes = fs::read(&image).unwrap();
    let content = b"file 11 file 11 file 11";
    let at = bytes.windows(content.len()).position(|window| window == content).unwrap();
    bytes[at] ^= 1;
    fs::write(&image, bytes).unwrap();
    let name = image.display().to_string();
    let (out, tar) = (fixture.path("out"), fixture.path("tar"));
    let command = |words: &[&str], paths: &[&PathBuf]| {
        ferofs().args(words).args(["--roothash", &root]).arg(&image).args(paths).failure(1).stderr
    };
    let cat = command(&["cat"], &[&PathBuf::from("/dir3/file11")]);
    assert!(
        cat.contains(&format!("{name}: /dir3/file11: ")) && cat.contains("data block"),
        "{cat}"
    );
    let extract = command(&["extract"], &[&out]);
    assert!(
        extract.contains(&name)
            && extract.contains("dir3/file11: ")
            && extract.contains("data block"),
        "{extract}"
    );
    assert!(out.join("dir2/file10").exists(), "the other files are extracted");
    let archive = command(&["extract", "--tar", tar.to_str().unwrap()], &[]);
    assert!(
        archive.contains(&name)
            && archive.contains("dir3/file11: ")
            && archive.contains("data block"),
        "{archive}"
    );
    assert!(!tar.exists(), "there is no archive of an image that cannot be read");
}
