//! Tests: the command lines of programs that call `mkfs.erofs` give the right options.

use super::*;

fn options(line: &str) -> Result<Options, String> {
    let args = Args::parse_line(line.split_whitespace()).unwrap_or_else(|e| panic!("{line}: {e}"));
    args.options().map_err(|refusal| refusal.to_string())
}

fn usage_error(line: &str) -> String {
    Args::parse_line(line.split_whitespace()).map(drop).unwrap_err().to_string()
}

const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

#[test]
fn parses_the_command_lines_of_container_tools() {
    use ferofs::build::{SourceData, SourceFormat, Whiteouts};
    let containerd = options(&format!(
        "mkfs.erofs --tar=f --aufs --quiet -Enoinline_data -T0 --mkfs-time --sort=none -U {UUID} LAYER"
    ));
    let containerd = containerd.unwrap();
    assert_eq!(
        (containerd.source.format, containerd.source.whiteouts),
        (SourceFormat::Tar, Whiteouts::Overlay)
    );
    assert_eq!(containerd.source.path, PathBuf::from("-"));
    assert_eq!((containerd.image.build_time, containerd.attributes.all_time), (Some(0), None));
    let nixos = options(&format!(
        "mkfs.erofs --quiet --force-uid=0 --force-gid=0 -L nix-store -U {UUID} -T 0 --hard-dereference --tar=f IMG"
    ));
    assert!(nixos.is_ok_and(
        |nixos| nixos.source.hard_dereference && nixos.source.path == std::path::Path::new("-")
    ));
    let file = options("mkfs.erofs --tar=headerball --ovlfs-strip --ungzip IMG TAR").unwrap();
    assert_eq!((file.source.data, file.source.strip_overlay), (SourceData::Absent, true));
    assert!(options("mkfs.erofs --tar=x IMG TAR").unwrap_err().starts_with("--tar x: "));
    assert!(options("mkfs.erofs IMG").unwrap_err().starts_with("SOURCE"));
    for packed in ["--gzip", "--unlzma", "--unxz", "--tar=f"] {
        assert!(
            options(&format!("mkfs.erofs --tar=f {packed} --sort=none IMG")).is_ok(),
            "{packed}"
        );
    }
    assert_eq!(options("mkfs.erofs --tar=0 IMG TAR").unwrap().source.data, SourceData::External);
    let reserved = options("mkfs.erofs --clean=rvsp --tar=i IMG TAR").unwrap();
    assert_eq!(
        (reserved.source.data, reserved.data.share_identical),
        (SourceData::Reserved, false)
    );
    assert!(
        options("mkfs.erofs --clean=rvsp -zlz4 --tar=f IMG TAR")
            .unwrap_err()
            .starts_with("-z lz4: ")
    );
    assert!(options("mkfs.erofs --clean=some IMG TAR").unwrap_err().starts_with("--clean some: "));
}

#[test]
fn incremental_refuses_options_of_new_images() {
    for line in ["--incremental IMG", "--incremental=data -zlz4hc IMG", "--tar=f --incremental IMG"]
    {
        assert!(options(&format!("mkfs.erofs {line} .")).is_ok(), "{line}");
    }
    for line in [
        "--incremental=all IMG",
        "--incremental=rvsp --tar=f IMG",
        "--incremental --tar=i IMG",
        "--incremental --tar=f --exclude-path=a IMG",
        "--incremental --clean IMG",
        "--incremental -U clear IMG",
        "--incremental --chunksize=4096 IMG",
    ] {
        let refused = options(&format!("mkfs.erofs {line} .")).unwrap_err();
        assert!(refused.starts_with("--incremental"), "{line}: {refused}");
    }
}

#[test]
fn the_last_of_two_opposite_options_wins() {
    let times = |line: &str| options(line).unwrap().attributes.all_time.is_some();
    assert!(times("mkfs.erofs -T0 --mkfs-time --all-time I D"));
    assert!(!times("mkfs.erofs -T0 --all-time --mkfs-time I D"));
    let keep = |line: &str| options(line).unwrap().inodes.keep_mtime;
    assert!(keep("mkfs.erofs --ignore-mtime --preserve-mtime I D"));
    assert!(!keep("mkfs.erofs --preserve-mtime --ignore-mtime I D"));
    assert!(!keep("mkfs.erofs -Eforce-inode-compact I D"));
}

#[test]
fn options_about_xattrs_are_converted() {
    let xattrs = options(
        "mkfs.erofs -x 3 --xattr-prefix=user. --xattr-prefix=trusted.overlay. --xattr-inode-digest --root-xattr-isize=200 \
         -E^xattr-name-filter I D",
    );
    let xattrs = xattrs.unwrap().xattrs;
    assert_eq!((xattrs.inline_limit, xattrs.root_min, xattrs.name_filter), (Some(3), 200, false));
    assert_eq!(xattrs.prefixes[0].infix, b"overlay.");
    assert_eq!(xattrs.digest.unwrap().infix, ferofs::build::DIGEST_NAME);
}

#[test]
fn options_about_chunks_are_converted() {
    let chunks = |line: &str| options(line).map(|options| options.data.chunks.unwrap());
    let android = chunks("mkfs.erofs -z lz4hc,9 --chunksize 4096 OUT IN").unwrap();
    assert_eq!((android.size, android.force_indexes, android.device), (4096, false, None));
    let device =
        chunks("mkfs.erofs --chunksize=2097152 --blobdev=data -Eforce-chunk-indexes I D").unwrap();
    assert_eq!((device.size, device.device), (2 << 20, Some("data".into())));
    for line in [
        "--chunksize=5000",
        "--chunksize=512",
        "--blobdev=x",
        "--chunksize=4096 --blobdev=x -Eforce-inode-blockmap",
    ] {
        assert!(options(&format!("mkfs.erofs {line} I D")).is_err(), "{line}");
    }
}

#[test]
fn sizes_are_parsed_as_by_erofs_utils() {
    let block = |size: &str| {
        options(&format!("mkfs.erofs -b{size} IMG DIR")).map(|made| made.image.block_size.bytes())
    };
    for (text, bytes) in [
        ("4096", 4096),
        ("4k", 4096),
        ("4K", 4096),
        ("0x1000", 4096),
        ("010000", 4096),
        ("512", 512),
    ] {
        assert_eq!(block(text), Ok(bytes), "{text}");
    }
    let cluster = |line: &str| options(&format!("mkfs.erofs {line} IMG DIR"));
    for line in
        ["-C4096", "-C8k", "-zlz4 -C1M", "-b512 -C512", "-C2M", "-zlz4 -C12288", "-zlz4 -C0x2000"]
    {
        assert!(cluster(line).is_ok(), "{line}");
    }
    for line in ["-C0", "-zlz4 -C0", "-C1", "-C4097", "-zlz4 -C6000", "-zlz4 -C2048"] {
        assert!(cluster(line).map(drop).unwrap_err().starts_with("-C "), "{line}");
    }
    for line in ["-Cx", "-C4096x", "-C4KiB", "-C", "-bx", "-b4kb", "-C09", "-C99999999999G"] {
        usage_error(&format!("mkfs.erofs IMG DIR {line}"));
    }
}

#[test]
fn numbers_are_parsed_as_by_erofs_utils() {
    let parsed = options(
        "mkfs.erofs -T0x10 --max-extent-bytes=64K -x 0x3 --force-uid=0x7 --force-gid=010 --uid-offset=-0x1 --workers=0x2 \
         --fsalignblks=3 --dsunit=0x2 --root-xattr-isize=0x40 --offset=64k --chunksize=0x10000 -zlz4 --zfeature-bits=0x2 I D",
    );
    let parsed = parsed.unwrap();
    let compression = parsed.data.compression.unwrap();
    assert_eq!((parsed.image.build_time, compression.max_extent), (Some(16), Some(64 << 10)));
    assert_eq!((parsed.attributes.force_uid, parsed.attributes.force_gid), (Some(7), Some(8)));
    assert_eq!((parsed.run.workers.unwrap().get(), parsed.output.size_alignment.get()), (2, 4));
    assert_eq!((parsed.xattrs.root_min, parsed.output.offset), (64, 64 << 10));
    assert_eq!((parsed.data.chunks.unwrap().size, compression.inline_tails), (64 << 10, true));
    for wrong in ["-T1s", "-T08", "--offset=1T", "--force-uid=-1", "-x 1k"] {
        usage_error(&format!("mkfs.erofs {wrong} I D"));
    }
}

#[test]
fn options_may_be_given_twice() {
    let twice =
        options("mkfs.erofs --quiet -T1 -C8192 -zlz4 --quiet -T2 -C16384 -z lzma,9 I D").unwrap();
    assert_eq!(
        (twice.image.build_time, twice.data.compression.as_ref().unwrap().pcluster),
        (Some(2), Some(16384))
    );
    // As erofs-utils, all compressors count.
    assert_eq!(twice.data.compression.unwrap().methods.len(), 2);
}

#[test]
fn metadata_compression_needs_no_data_compression() {
    let of = |line: &str| options(&format!("mkfs.erofs {line} I D")).unwrap().data.compression;
    assert!(of("-m4096").is_none() && of("-m4096:0").is_none() && of("-z : -m4096").is_none());
    // As erofs-utils: the compressor of metadata compresses data, too.
    let both = of("-m4k:lzma").unwrap();
    assert_eq!(
        (both.methods.len(), both.metadata.unwrap().method, both.metadata.unwrap().pcluster),
        (1, 0, 4096)
    );
    let first = of("-zlz4:zstd -m4096:0").unwrap();
    assert_eq!((first.methods.len(), first.metadata.unwrap().method), (2, 0));
    let second = of("-zlz4:zstd -m4096:1").unwrap();
    let (number, methods) = (second.metadata.unwrap().method, second.methods);
    assert_eq!(methods[number], methods[1]);
}

#[test]
fn refusals_name_the_option_and_the_reason() {
    let reason = |line: &str| options(line).map(drop).unwrap_err();
    assert_eq!(
        reason("mkfs.erofs -Edegupe I D"),
        "-E degupe: unknown extended option; the nearest is dedupe"
    );
    assert!(
        reason("mkfs.erofs -zlz5 I D")
            .starts_with("-z lz5: unknown compressor; the compressors are lz4, ")
    );
    assert_eq!(
        reason("mkfs.erofs -zlz4hc,13 I D"),
        "-z lz4hc,13: lz4 has no level 13: 0 (fast) to 12"
    );
    assert_eq!(reason("mkfs.erofs -b 1000 I D"), "-b 1000: not a power of two from 512 to 65536");
    assert!(reason("mkfs.erofs -U xyz I D").starts_with("-U xyz: not a UUID"));
    assert!(
        reason("mkfs.erofs --s3=host I bucket")
            .starts_with("--s3 host: ferofs does not read object stores")
    );
    assert!(
        reason("mkfs.erofs --oci I ref").starts_with("--oci f: not an OCI image layout on disk")
    );
    assert!(reason("mkfs.erofs --oci=i I ref").starts_with("--oci i: takes only f and platform="));
    assert!(reason("mkfs.erofs --oci=f,platform=x I ref").contains("linux/arm64"));
    assert!(reason("mkfs.erofs --gzinfo=x I D").contains("gzip"));
    assert!(reason("mkfs.erofs --product-out=x I D").contains("--fs-config-file"));
    assert!(reason("mkfs.erofs -x -1 --file-contexts=x I D").contains("--file-contexts"));
    assert!(reason("mkfs.erofs --xattr-prefix=overlay. I D").contains("trusted.overlay."));
    assert!(reason("mkfs.erofs --fsalignblks=0x80000001 I D").contains("more than"));
    assert!(reason("mkfs.erofs --MZ=idx I D").contains("i and d"));
    assert!(reason("mkfs.erofs -zlz4 -m4096:1 I D").contains("number"));
    assert!(reason("mkfs.erofs --oci=f,insecure I D").contains("registries"));
    assert!(reason("mkfs.erofs --exclude-regex=( I D").contains("POSIX"));
}

#[test]
fn an_unknown_option_is_reported_with_the_nearest_name() {
    let error = usage_error("mkfs.erofs --xattr-prefx=a I D");
    assert!(error.contains("--xattr-prefx") && error.contains("--xattr-prefix"), "{error}");
    assert!(usage_error("mkfs.erofs -Q I D").contains("-Q"));
}

#[test]
fn the_help_contains_the_words_that_callers_search() {
    let help = usage_error("mkfs.erofs --help");
    for text in
        ["--tar=", "Available compressors", "supported compressors", "lz4hc", "--aufs", "--quiet"]
    {
        assert!(help.contains(text), "{text}: {help}");
    }
}

/// The list has all long options of erofs-utils 1.9.4, with those that `mkfs.erofs --help` does not
/// mention.
#[test]
fn every_option_of_erofs_utils_exists() {
    const FLAGS: &str = "all-time mkfs-time zD MZ all-root async-queue-limit blobdev chunksize clean incremental \
        compress-hints dsunit exclude-path exclude-regex file-contexts force-uid force-gid fsalignblks uid-offset \
        gid-offset hard-dereference ignore-mtime max-extent-bytes mount-point preserve-mtime offset \
        root-xattr-isize aufs sort s3 oci tar ovlfs-strip quiet ungzip unxz gzinfo vmdk-desc workers \
        xattr-inode-digest xattr-prefix zfeature-bits version help gzip unlzma";
    const SHORT: &str = "bdxzCELmTUVh";
    let mut command = Args::command();
    command.build();
    for flag in FLAGS.split_whitespace() {
        let is_named = |arg: &clap::Arg| {
            arg.get_long_and_visible_aliases().is_some_and(|names| names.contains(&flag))
        };
        assert!(command.get_arguments().any(is_named), "--{flag}");
    }
    for flag in SHORT.chars() {
        assert!(command.get_arguments().any(|arg| arg.get_short() == Some(flag)), "-{flag}");
    }
}
