//! Shared extended attributes of built images and of patched ones.

use ferofs_build::{BlockSize, Builder, Content, IndexKind, MetadataCompression, SourceFormat};
use ferofs_codec::{Algorithm, Params};

use super::*;

/// Files with `shared` attributes that all of them have.
fn tree(files: usize, shared: usize, options: &build::Options) -> Vec<u8> {
    let mut builder = Builder::new();
    *builder.options() = options.clone();
    for number in 0..files {
        let mut attributes = build::Attributes::default();
        for shared in 0..shared {
            attributes = attributes.xattr(format!("user.shared-{shared}"), vec![b'x'; 60 + shared]);
        }
        builder.file(format!("d/{number}"), Content::bytes(text(100 + number * 900)), attributes);
    }
    let mut image = Vec::new();
    builder.write_to(&mut image).unwrap();
    image
}

/// Fails unless the image has a whole block from the start of each shared attribute on, and some of them. go-erofs, the reader in containerd,
/// reads that much.
fn assert_blocks_from_shared(bytes: &[u8], what: &str) {
    let image = Image::open(bytes.to_vec()).unwrap();
    let report = check::check(&image, &check::Options::default()).unwrap();
    assert!(report.is_sound(), "{what}: {:?}", report.findings);
    let mut found = 0;
    for walked in Walk::new(&image) {
        image
            .walk_xattrs(&walked.unwrap().inode.unwrap(), |_, place| {
                let Some(place) = place else { return };
                found += 1;
                let end = place.pos.get() + image.superblock().block_size.bytes64();
                assert!(end <= bytes.len() as u64, "{what}: {} of {}", place.pos.get(), bytes.len());
            })
            .unwrap();
    }
    assert!(found > 0, "{what}: no shared attributes");
}

fn compressed(metabox: bool) -> Option<Compression> {
    let mut compression = Compression::new(Params::new(Algorithm::Zstd, Some(1)).unwrap());
    compression.index = IndexKind::Extents;
    compression.pcluster = Some(16 << 10);
    compression.metadata = metabox.then(|| MetadataCompression::new(0, 16 << 10));
    Some(compression)
}

#[test]
fn a_block_can_be_read_from_each_shared_attribute_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    type Change = fn(&mut build::Options);
    let kinds: [(&str, Change); 6] = [
        ("stored", |_| {}),
        ("lz4", |options| options.data.compression = Some(Compression::lz4(0).unwrap())),
        ("48bit", |options| options.data.compression = compressed(false)),
        ("metabox", |options| options.data.compression = compressed(true)),
        ("512", |options| options.image.block_size = BlockSize::from_bits(9).unwrap()),
        ("16K", |options| options.image.block_size = BlockSize::from_bits(14).unwrap()),
    ];
    for (kind, change) in kinds {
        // Metadata that begins behind the superblock, with and without data, and other images; more than one block of attributes.
        for (files, shared) in [(2, 1), (2, 2), (8, 3), (40, 2), (400, 1), (4, 90)] {
            let what = format!("{kind} {files} {shared}");
            let mut options = build::Options::new("");
            change(&mut options);
            let image = tree(files, shared, &options);
            assert_blocks_from_shared(&image, &what);
            std::fs::write(path("image"), &image).unwrap();
            let mut create_options = CreateOptions::new("");
            create_options.new_image = Some(Image::open(tree(files + 1, shared, &options)).unwrap());
            create_options.build.source.format = SourceFormat::Image;
            create(&path("image"), &create_options, &path("patch")).unwrap();
            let medium = Recorder::new(image);
            let patch = Patch::open(&path("patch")).unwrap();
            apply(&medium, &patch, TrailingData::Keep, &AtomicBool::new(false)).unwrap();
            assert_blocks_from_shared(&medium.bytes.lock().unwrap(), &format!("patched {what}"));
            rollback(&medium, None, TrailingData::Keep, 0).unwrap();
            assert_blocks_from_shared(&medium.bytes.lock().unwrap(), &format!("rolled back {what}"));
            std::fs::write(path("image"), &*medium.bytes.lock().unwrap()).unwrap();
            squash(&path("image"), &path("squashed")).unwrap();
            assert_blocks_from_shared(&std::fs::read(path("squashed")).unwrap(), &format!("squashed {what}"));
        }
    }
}
