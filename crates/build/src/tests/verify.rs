//! `--verify` finds each kind of damage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ferofs_format::superblock::Superblock;

use super::{TestBuild, noise, text};
use crate::Error;
use crate::data::stored::StoredContent;
use crate::sources::content::Contents;
use crate::sources::directory;
use crate::tree::NodeId;
use crate::tree::inode_sizes::InodeSizes;
use crate::verify::Verifier;

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

    let contents = Contents::directory(&test.options.source.path).unwrap();
    let root = contents.root().unwrap();
    let tree = directory::walk(&test.options, &test.options.source.path, root, &[], &mut Vec::new()).unwrap();
    let xattrs = tree.xattrs.plan(&test.options.xattrs, tree.node(NodeId::ROOT).xattrs, false).unwrap();
    let superblock = Superblock::parse(&whole[1024..]).unwrap();
    let inode_sizes =
        InodeSizes::new(&tree, &xattrs, &superblock, &test.options.inodes, &test.options.source.path)
            .unwrap();
    let stored = vec![StoredContent::None; tree.nodes.len()];
    let verify = |bytes: &[u8]| {
        fs::write(test.image(), bytes).unwrap();
        let (options, superblock, stored) = (&test.options, &superblock, &stored[..]);
        let (tree, inode_sizes, xattrs, contents) = (&tree, &inode_sizes, &xattrs, &contents);
        Verifier { options, tree, inode_sizes, xattrs, contents, stored, superblock }
            .run(Box::new(ferofs_read::FileSource::open(test.image(), 0).unwrap()), Vec::new())
    };
    verify(&whole).unwrap();
    let find = |wanted: &[u8]| whole.windows(wanted.len()).position(|bytes| bytes == wanted).unwrap();
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
