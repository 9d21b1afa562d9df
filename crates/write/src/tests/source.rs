//! Tests of the source directory, and of builds whose source or options are wrong; `--verify` finds
//! each kind of damage.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;

use ferofs_format::superblock::Superblock;

use crate::build::new_superblock;
use crate::data::identical::IdenticalFiles;
use crate::data::order::Order;
use crate::data::stored::StoredContent;
use crate::data::worker::context::WorkerContext;
use crate::output::Output;
use crate::output::spill::Spill;
use crate::sources::content::Contents;
use crate::sources::directory;
use crate::tests::{TestBuild, noise, text};
use crate::tree::inode_sizes::InodeSizes;
use crate::tree::xattr::XattrPlan;
use crate::tree::{NodeId, Tree};
use crate::verify::Verifier;
use crate::{Error, Options, build, data};

#[test]
fn links_are_counted_within_the_tree() {
    let test = TestBuild::new();
    test.write("a", b"content");
    let at = |name: &str| test.options.source.path.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("a"), at("d/b")).unwrap();
    fs::hard_link(at("a"), test.dir.path().join("outside")).unwrap();
    symlink("d/b", at("link")).unwrap();
    let summary = test.build();
    assert_eq!((summary.inodes, summary.files, summary.directories), (4, 1, 2));
    let image = test.open();
    let nid = |path: &str| image.resolve(Path::new(path), false).unwrap().nid();
    assert_eq!(nid("a"), nid("d/b"));
    assert_eq!(image.resolve(Path::new("a"), false).unwrap().on_disk().nlink, 2);
    assert_eq!(test.read("link"), b"d/b");
}

#[test]
fn the_image_does_not_contain_itself() {
    let test = TestBuild::new();
    test.write("a", b"a");
    let image = test.options.source.path.join("image");
    fs::write(&image, b"an older one").unwrap();
    assert_eq!(build(&test.options, &image).unwrap().inodes, 2);
}

/// The source of `test`, as a build has read it.
fn walk(test: &TestBuild) -> (Tree, Contents, XattrPlan) {
    let source = &test.options.source.path;
    let contents = Contents::directory(source).unwrap();
    let root = contents.root().unwrap();
    let tree = directory::walk(&test.options, source, root, &[], &mut Vec::new()).unwrap();
    let xattrs =
        tree.xattrs.plan(&test.options.xattrs, tree.node(NodeId::ROOT).xattrs, false).unwrap();
    (tree, contents, xattrs)
}

fn inode_sizes(
    test: &TestBuild,
    tree: &Tree,
    xattrs: &XattrPlan,
    superblock: &Superblock,
) -> InodeSizes {
    let Options { inodes, source, .. } = &test.options;
    InodeSizes::new(tree, xattrs, superblock, inodes, &source.path).unwrap()
}

#[test]
fn an_error_names_the_file_that_changed() {
    let test = TestBuild::new();
    test.write("changing", text(9 << 20));
    let path = test.options.source.path.join("changing");
    let (tree, contents, xattrs) = walk(&test);
    fs::File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let inode_sizes = inode_sizes(&test, &tree, &xattrs, &new_superblock(&test.options).unwrap());
    let identical_files = IdenticalFiles::none(&tree);
    let (compression, block_size) =
        (test.options.data.compression.as_ref(), test.options.image.block_size);
    let order = Order::new(&tree, compression, block_size, &test.options.data);
    let context = WorkerContext {
        options: &test.options,
        tree: &tree,
        order: &order,
        inode_sizes: &inode_sizes,
        identical_files: &identical_files,
        base_image: None,
        extent_index: None,
        compression,
        contents: &contents,
        block_size,
    };
    let mut output = Output::create(&test.image(), 0).unwrap();
    let mut spill = Spill::new(test.dir.path());
    let result = data::run(context, &mut output, &mut spill, &mut Vec::new());
    assert!(matches!(result, Err(Error::SourceChanged(changed)) if changed == path));
}

#[test]
fn verify_names_each_difference() {
    let mut test = TestBuild::new();
    test.options.output.verify = true;
    test.write("compressed", text(6 << 20));
    test.write("stored", noise(6 << 20));
    test.write("small", b"behind its inode");
    let at = |name: &str| test.options.source.path.join(name);
    fs::create_dir(at("d")).unwrap();
    fs::hard_link(at("small"), at("d/link")).unwrap();
    symlink("target", at("symlink")).unwrap();
    test.build();
    let whole = fs::read(test.image()).unwrap();

    let (tree, contents, xattrs) = walk(&test);
    let superblock = Superblock::parse(&whole[1024..]).unwrap();
    let inode_sizes = inode_sizes(&test, &tree, &xattrs, &superblock);
    let stored = vec![StoredContent::None; tree.nodes.len()];
    let verify = |bytes: &[u8]| {
        fs::write(test.image(), bytes).unwrap();
        let (options, superblock, stored) = (&test.options, &superblock, &stored[..]);
        let (tree, inode_sizes, xattrs, contents) = (&tree, &inode_sizes, &xattrs, &contents);
        Verifier { options, tree, inode_sizes, xattrs, contents, stored, superblock }
            .run(Box::new(ferofs_read::FileSource::open(test.image(), 0).unwrap()), Vec::new())
    };
    verify(&whole).unwrap();
    let find =
        |wanted: &[u8]| whole.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
    let image = test.open();
    let place = |name: &str| {
        let nid = image.resolve(Path::new(name), false).unwrap().nid();
        ((superblock.meta.get() << 12) + nid.get() * 32) as usize
    };
    for (place, file, what) in [
        (find(b"behind its inode"), "small", "content"),
        (find(&noise(6 << 20)[5 << 20..][..64]), "stored", "content"),
        (place("small") + 5, "small", "mode"),
        (place("small") + 8, "small", "size"),
        (find(b"symlink"), "symlink", "name"),
        (find(b"target"), "symlink", "target"),
    ] {
        let mut damaged = whole.clone();
        damaged[place] ^= 1;
        match verify(&damaged) {
            Err(Error::VerifyMismatch { path, what: found }) => {
                assert_eq!((path, found), (test.options.source.path.join(file), what));
            }
            other => panic!("{file} {what}: {other:?}"),
        }
    }
}
