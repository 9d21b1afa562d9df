//! Extended attributes of built images, of patched ones, and of images that are built from them:
//! the place of shared attributes, and the digests of files (`--inode-digests`).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use ferofs_codec::{Algorithm, Params};
use ferofs_format::Compat;
use ferofs_write::{
    BlockSize, Builder, Content, IndexKind, MetadataCompression, SourceFormat, XattrOptions,
};

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

/// Fails unless the image has a whole block from the start of each shared attribute on, and some of
/// them. go-erofs, the reader in containerd, reads that much.
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
                assert!(
                    end <= bytes.len() as u64,
                    "{what}: {} of {}",
                    place.pos.get(),
                    bytes.len()
                );
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
        // Metadata that begins after the superblock, with and without data, and other images; more
        // than one block of attributes.
        for (files, shared) in [(2, 1), (2, 2), (8, 3), (40, 2), (400, 1), (4, 90)] {
            let what = format!("{kind} {files} {shared}");
            let mut options = build::Options::new("");
            change(&mut options);
            let image = tree(files, shared, &options);
            assert_blocks_from_shared(&image, &what);
            std::fs::write(path("image"), &image).unwrap();
            let mut create_options = CreateOptions::new("");
            create_options.new_image =
                Some(Image::open(tree(files + 1, shared, &options)).unwrap());
            create_options.build.source.format = SourceFormat::Image;
            create(path("image"), &create_options, path("patch")).unwrap();
            let medium = Recorder::new(image);
            let patch = Patch::open(path("patch")).unwrap();
            apply_to(&medium, &patch).unwrap();
            assert_blocks_from_shared(&medium.bytes.lock().unwrap(), &format!("patched {what}"));
            rollback(&medium, None, TrailingData::Keep, 0).unwrap();
            assert_blocks_from_shared(
                &medium.bytes.lock().unwrap(),
                &format!("rolled back {what}"),
            );
            std::fs::write(path("image"), &*medium.bytes.lock().unwrap()).unwrap();
            squash(&path("image"), &path("squashed")).unwrap();
            assert_blocks_from_shared(
                &std::fs::read(path("squashed")).unwrap(),
                &format!("squashed {what}"),
            );
        }
    }
}

/// The number of the long prefix for digests.
fn digest_prefix(image: &Image) -> Option<u8> {
    let superblock = image.superblock();
    superblock.compat.contains(Compat::ISHARE_XATTRS).then_some(superblock.ishare_xattr_prefix_id)
}

/// The digest of each file of the image, by its path. They are in the attribute whose name the
/// superblock names.
fn digests(bytes: Vec<u8>) -> BTreeMap<PathBuf, Vec<u8>> {
    let image = Image::open(bytes).unwrap();
    let report = check::check(&image, &check::Options::default()).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let number = digest_prefix(&image).expect("the image has digests");
    let mut found = BTreeMap::new();
    for walked in Walk::new(&image) {
        let walked = walked.unwrap();
        image
            .walk_xattrs(&walked.inode.unwrap(), |entry, _| {
                if entry.index.long_number() == Some(number.into()) && entry.name.is_empty() {
                    assert_eq!(found.insert(walked.path.clone(), entry.value.to_vec()), None);
                }
            })
            .unwrap();
    }
    found
}

#[test]
fn digests_stay_right() {
    for (name, metabox) in
        [("erofs.fingerprint.v1", false), ("user.digest", false), ("user.digest", true)]
    {
        let fixture = Fixture::new(None);
        let mut options = build::Options::new(fixture.path("old"));
        options.data.compression = if metabox { compressed(true) } else { None };
        options.xattrs.digest = XattrOptions::digest_name(name.as_bytes());
        options.xattrs.prefixes = vec![XattrOptions::prefix(b"trusted.overlay.").unwrap()];
        let built = |options: &build::Options| {
            build::build(options, fixture.path("built")).unwrap();
            std::fs::read(fixture.path("built")).unwrap()
        };
        std::fs::write(fixture.path("image"), built(&options)).unwrap();
        let old = digests(fixture.image());
        // Other content, new files, and the same content with other permissions.
        std::fs::set_permissions(
            fixture.path("new/a/same"),
            std::fs::Permissions::from_mode(0o600),
        )
        .unwrap();
        options.source.path = fixture.path("new");
        let reference = built(&options);
        let new = digests(reference.clone());
        assert!(old.len() == 3 && new.len() == 3 && old != new, "{name}: {old:?} {new:?}");

        // An image as the source, alone and below another source.
        let mut from_image = build::Options::new(fixture.path("image"));
        from_image.source.format = SourceFormat::Image;
        assert_eq!(digests(built(&from_image)), old, "{name}");
        from_image.source.upper_layers = vec![fixture.path("other")];
        std::fs::write(fixture.path("other"), &reference).unwrap();
        let merged: BTreeMap<_, _> = old.clone().into_iter().chain(new.clone()).collect();
        assert_eq!(digests(built(&from_image)), merged, "{name}");
        from_image.xattrs.keep = false;
        let without = Image::open(built(&from_image)).unwrap();
        assert_eq!(digest_prefix(&without), None);

        // Patches from a directory, and from an image without and with digests.
        options.xattrs.digest = None;
        let plain = built(&options);
        for new_image in [None, Some(plain), Some(reference)] {
            let mut create_options = CreateOptions::new(fixture.path("new"));
            create_options.build.output.verify = true;
            create_options.new_image = new_image.map(|image| Image::open(image).unwrap());
            create(fixture.path("image"), &create_options, fixture.path("patch")).unwrap();
            let patched = applied(&fixture.image(), &fixture.patch());
            assert_eq!(digests(patched.clone()), new, "{name}");
            std::fs::write(fixture.path("patched"), patched).unwrap();
            squash(&fixture.path("patched"), &fixture.path("squashed")).unwrap();
            assert_eq!(digests(std::fs::read(fixture.path("squashed")).unwrap()), new, "{name}");
            // Nothing else has changed: files that stay keep their inodes.
            let again = create(fixture.path("patched"), &create_options, fixture.path("again"));
            assert!(
                matches!(
                    again,
                    Err(ferofs_write::Error::Patch(ferofs::patch::PatchFault::Unchanged))
                ),
                "{name}: {again:?}"
            );
        }
    }
}
