//! Images that Linux refuses although each of their parts looks valid. Each has a twin that differs
//! in one field and is sound.

use std::fs;

use crate::common::fixture::Fixture;
use crate::common::hostile::command;
use crate::common::image_writer::{
    BIG_PCLUSTER, BIT48, CHUNKED, FLAT_INLINE, FLAT_PLAIN, FRAGMENTS, FULL, ImageWriter, InodeSpec,
    LZ4_0PADDING, REGULAR, head, non_head,
};

/// Writes the broken image, or its sound twin.
type Case = (&'static str, fn(bool) -> Vec<u8>);

const CASES: [Case; 23] = [
    ("a head after the end of the file", |broken| closing_head(1, if broken { 1000 } else { 904 })),
    ("a stored head after the end of the file", |broken| {
        closing_head(0, if broken { 4080 } else { 904 })
    }),
    ("a block count far after its head", |broken| third_record(1, if broken { 0x801 } else { 2 })),
    ("a block count of 0 far after its head", |broken| {
        third_record(1, if broken { 0x800 } else { 1 })
    }),
    ("a block count far after the head of a hole", |broken| {
        third_record(0, if broken { 0x801 } else { 2 })
    }),
    ("an LZ4 match with a distance of 0", |broken| lz4_match(!broken)),
    ("an LZ4 prefix that ends with a length", lz4_prefix),
    ("a damaged rest of a DEFLATE stream", deflate_rest),
    ("a truncated LZMA stream", lzma_prefix),
    ("a zstd frame without a size, and with a large window", zstd_window),
    ("a stored extent that ends after the device", |broken| {
        stored(if broken { 9000 } else { 4096 })
    }),
    ("a stored extent of more than 1 MiB", |broken| {
        stored(if broken { (1 << 20) + 4096 } else { 4096 })
    }),
    ("a full last block that is inline", |broken| {
        block_after_inode(if broken { FLAT_INLINE } else { FLAT_PLAIN })
    }),
    ("records of extents out of order", |broken| hole_record(if broken { 0 } else { 4096 })),
    ("a record of an extent after the end of the file", |broken| {
        hole_record(if broken { 9000 } else { 4096 })
    }),
    ("a hole that starts within an lcluster", |broken| {
        hole_after_data(if broken { 904 } else { 0 })
    }),
    ("a hole right after an lcluster that has no block count", |broken| {
        hole_after_lcluster(broken)
    }),
    ("a fragment that is marked as a hole", |broken| {
        marked_fragment(if broken { HOLE } else { 0 })
    }),
    ("a device with an unknown chunk format", |broken| {
        device(if broken { 0x0803 } else { 0x0003 })
    }),
    ("shared attributes in a metabox that is not there", |broken| {
        compat(if broken { 8 } else { 0 })
    }),
    ("page-cache sharing by an attribute that is not there", |broken| {
        compat(if broken { 0x20 } else { 0 })
    }),
    ("pclusters of more blocks than Linux has pages for", |broken| {
        pcluster_blocks(if broken { 260 } else { 256 })
    }),
    ("an LZ4 pcluster of more blocks than the image's limit", |broken| {
        lz4_in_two_blocks(if broken { 1 } else { 2 })
    }),
];

/// An image with a file of `size` bytes, whose one extent has the `stream` at the end of a block,
/// and this kind of HEAD.
fn file(
    mut writer: ImageWriter,
    size: u64,
    header: [u8; 8],
    stream: &[u8],
    advise: u16,
) -> Vec<u8> {
    let block = writer.data_at_end(stream);
    let file = writer.full(size, header, &[head(advise, 0, block)]);
    writer.finish_with_file(file)
}

const PARTIAL_REF: u16 = 1 << 15;
/// `Z_EROFS_LI_HOLE`.
const HOLE: u16 = 1 << 14;

/// Encodes a repeated letter as LZ4.
fn lz4_run(len: usize) -> Vec<u8> {
    lz4_run_of(b'a', len)
}

fn lz4_run_of(byte: u8, len: usize) -> Vec<u8> {
    let mut rest = len - 1 - 5 - 4 - 15;
    let mut stream = vec![0x1f, byte, 1, 0];
    while rest >= 255 {
        stream.push(255);
        rest -= 255;
    }
    stream.push(rest as u8);
    stream.push(0x50);
    stream.extend([byte; 5]);
    stream
}

fn closing_head(kind: u16, clusterofs: u16) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING);
    let stream = lz4_run(5000);
    let block = writer.data_at_end(&stream);
    let file = writer.full(5000, [0; 8], &[head(1, 0, block), head(kind, clusterofs, block + 1)]);
    writer.finish_with_file(file)
}

/// An extent of three lclusters and `blocks` blocks; without any, it is a hole. A reader that
/// starts at the third lcluster takes the distance `back`.
fn third_record(blocks: u16, back: u16) -> Vec<u8> {
    let mut writer = configured(1, &[14, 0, 0xff, 0xff, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let stream = lz4_run(12_000);
    let block = writer.data_at_end(&stream);
    let records = [head(1, 0, block), non_head(0x800 | blocks, 2), non_head(back, 1)];
    // The flag BIG_PCLUSTER_1.
    let file = writer.full(12_000, [0, 0, 0, 0, 2, 0, 0, 0], &records);
    writer.finish_with_file(file)
}

/// A pcluster of two blocks in an image whose largest pclusters have `max` blocks.
fn lz4_in_two_blocks(max: u8) -> Vec<u8> {
    let mut writer = configured(1, &[14, 0, 0xff, 0xff, max, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // 4,100 literals, 7,895 repeated ones, and five at the end.
    let literals = [&[0xff][..], &[255; 16], &[5], &[b'a'; 4100]].concat();
    let stream = [&literals[..], &[1, 0], &[255; 30], &[226, 0x50], &[b'a'; 5]].concat();
    let block = writer.data(&[vec![0; 8192 - stream.len()], stream].concat());
    let records = [head(1, 0, block), non_head(0x802, 2), non_head(2, 1)];
    let file = writer.full(12_000, [0, 0, 0, 0, 2, 0, 0, 0], &records);
    writer.finish_with_file(file)
}

fn lz4_match(sound: bool) -> Vec<u8> {
    let stream = [&[0x14, b'a', sound.into(), 0, 0xc0][..], &[b'z'; 12]].concat();
    file(ImageWriter::new(LZ4_0PADDING), 21, [0; 8], &stream, 1)
}

fn lz4_prefix(broken: bool) -> Vec<u8> {
    let end: &[u8] = if broken { b"0xyz" } else { b"\x50vwxyz" };
    let stream = [b"\xefabcdefghijklmn\x02\x00\x51", end].concat();
    file(ImageWriter::new(LZ4_0PADDING), 100, [0; 8], &stream, 1 | PARTIAL_REF)
}

fn configured(available: u16, records: &[u8]) -> ImageWriter {
    let mut writer = ImageWriter::new(LZ4_0PADDING | BIG_PCLUSTER);
    writer.configure(available, records);
    writer
}

/// A fixed block with eight letters, and a stored block that is empty or has a false length.
fn deflate_rest(broken: bool) -> Vec<u8> {
    let length: &[u8] = if broken { &[7, 0, 0, 0] } else { &[0, 0, 0xff, 0xff] };
    // Stored, not the last: "damaged?". Then stored, the last.
    let stream = [&[0, 8, 0, 0xf7, 0xff][..], b"a prefix", &[1], length].concat();
    // The padding ends at the first byte that is not 0: a bit that a stored block does not use.
    let stream = [&[0x08][..], &stream[1..]].concat();
    file(
        configured(4, &[6, 0, 15, 0, 0, 0, 0, 0]),
        8,
        [0, 0, 0, 0, 0, 0, 0x22, 0],
        &stream,
        1 | PARTIAL_REF,
    )
}

/// "a prefix of some letters", of which the file has eight. Thirteen bytes give them; Linux misses
/// a byte for the state after them.
fn lzma_prefix(broken: bool) -> Vec<u8> {
    let stream = b"\x91\x30\x88\x0a\x07\x23\x43\x03\xe9\x06\xe6\xb1\x37\x88\x48\x57\xbe\xa6\x52\x5c\x27\xdc\xbb\xaa\x51\x0d\xbf\x54\xe8\x4a\xff\xff\x4f\x6c";
    let stream = if broken { &stream[..13] } else { &stream[..] };
    let records = [14, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file(configured(2, &records), 8, [0, 0, 0, 0, 0, 0, 0x11, 0], stream, 1 | PARTIAL_REF)
}

fn zstd_window(broken: bool) -> Vec<u8> {
    // No size, and a window of 2 MiB or 1 KiB. Then one raw block, the last.
    let window = if broken { 11 << 3 } else { 0 };
    let stream = [&[0x28, 0xb5, 0x2f, 0xfd, 0, window, 0x41, 0, 0][..], b"a letter"].concat();
    file(configured(8, &[6, 0, 0, 5, 0, 0, 0, 0]), 8, [0, 0, 0, 0, 0, 0, 0x33, 0], &stream, 1)
}

fn block_after_inode(layout: u16) -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let union = writer.data(&[b'x'; 4096]);
    let file =
        writer.inode(&InodeSpec { mode: REGULAR, layout, size: 4096, union, links: 1, after: &[] });
    writer.finish_with_file(file)
}

/// A file with a block of data, which the first record maps: it and `records` have `plen`, the
/// address's two halves and `lstart`.
fn extents(size: u64, plen: u32, records: &[[u32; 4]]) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | BIT48);
    let block = writer.data(&[0x55; 4096]);
    let records = [&[[plen, block * 4096, 0, 0]], records].concat();
    let bytes: Vec<u8> = records.iter().flatten().flat_map(|field| field.to_le_bytes()).collect();
    // Layout EXTENTS with records of 16 bytes.
    let map = [&[records.len() as u8, 0, 0, 0, 0x05, 0, 0, 0][..], &[0; 8], &bytes].concat();
    let spec = InodeSpec { mode: REGULAR, layout: FULL, size, union: 1, links: 1, after: &map };
    let file = writer.inode(&spec);
    writer.finish_with_file(file)
}

fn stored(plen: u32) -> Vec<u8> {
    extents(4096, plen, &[])
}

/// A block of data, and a hole of a block from `lstart` on.
fn hole_record(lstart: u32) -> Vec<u8> {
    extents(8192, 4096, &[[0, 0, 0, lstart]])
}

/// Two lclusters of data, and a hole that begins `clusterofs` bytes after the first one. Linux 7.2
/// reads zeroes before it, too.
fn hole_after_data(clusterofs: u16) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING);
    let stream = lz4_run(4096 + usize::from(clusterofs));
    let data = writer.data_at_end(&stream);
    let zeroes = lz4_run_of(0, 8192);
    let zeroes = writer.data_at_end(&zeroes);
    let records = [head(1, 0, data), head(1 | HOLE | PARTIAL_REF, clusterofs, zeroes)];
    let file = writer.full(8192, [0; 8], &records);
    writer.finish_with_file(file)
}

/// The same, after the only lcluster of an extent whose number of blocks Linux searches where the
/// hole is.
fn hole_after_lcluster(big: bool) -> Vec<u8> {
    let mut writer = configured(1, &[14, 0, 0xff, 0xff, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let data = writer.data(&[0x55; 4096]);
    let zeroes = lz4_run_of(0, 4096);
    let zeroes = writer.data_at_end(&zeroes);
    let advise = if big { 6 } else { 0 };
    let file = writer.full(
        8192,
        [0, 0, 0, 0, advise, 0, 0, 0],
        &[head(0, 0, data), head(1 | HOLE, 0, zeroes)],
    );
    writer.finish_with_file(file)
}

/// A file of a stored block and a fragment, whose HEAD has these flags.
fn marked_fragment(flags: u16) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | FRAGMENTS);
    let block = writer.data(&[0x55; 4096]);
    let packed = writer.file(b"the packed inode");
    writer.set_packed(packed);
    // The flag FRAGMENT_PCLUSTER, with the offset 0.
    let file =
        writer.full(4112, [0, 0, 0, 0, 0x20, 0, 0, 0], &[head(0, 0, block), head(1 | flags, 0, 0)]);
    writer.finish_with_file(file)
}

fn device(union: u32) -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let spec = InodeSpec { mode: 0o060_644, layout: CHUNKED, size: 0, union, links: 1, after: &[] };
    let file = writer.inode(&spec);
    writer.finish_with(&[(b"file", file, 4)])
}

fn compat(features: u32) -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    writer.put(1024 + 8, &features.to_le_bytes());
    writer.finish_with(&[])
}

/// An empty image with blocks of 1 KiB, of which 1024 are the 1 MiB that other rules allow.
fn pcluster_blocks(max: u16) -> Vec<u8> {
    let [low, high] = max.to_le_bytes();
    let writer = configured(1, &[14, 0, 0xff, 0xff, low, high, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut image = writer.finish_with(&[]);
    let blocks = (image.len() / 1024) as u32;
    image[1024 + 0x0C] = 10;
    image[1024 + 0x24..1024 + 0x2C]
        .copy_from_slice(&[blocks.to_le_bytes(), 4u32.to_le_bytes()].concat());
    image
}

#[test]
fn check_finds_what_only_linux_refuses() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let mut wrong = Vec::new();
    for (name, create) in CASES {
        for broken in [false, true] {
            fs::write(&image, create(broken)).unwrap();
            let checked = command(&["check", "--deep"], &image, &[]);
            if checked.code != if broken { 4 } else { 0 } {
                wrong.push((name, broken, checked.code, checked.stderr));
            }
        }
    }
    assert!(wrong.is_empty(), "check gives the wrong result: {wrong:#?}");
}

/// erofs-utils writes 0 when it encodes with libdeflate. Linux refuses only values above 15.
#[test]
fn deflate_needs_no_window_bits() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    for (bits, code) in [(0, 0), (15, 0), (16, 4)] {
        let stream = [0x09, 8, 0, 0xf7, 0xff, b'a', b' ', b'l', b'e', b't', b't', b'e', b'r'];
        let writer = configured(4, &[6, 0, bits, 0, 0, 0, 0, 0]);
        fs::write(&image, file(writer, 8, [0, 0, 0, 0, 0, 0, 0x22, 0], &stream, 1)).unwrap();
        let checked = command(&["check", "--deep"], &image, &[]);
        assert_eq!(checked.code, code, "{bits}: {}", checked.stderr);
    }
}

/// Incremental builds of erofs-utils leave such counts: Linux reads them, and frees no inode.
#[test]
fn a_link_count_above_the_number_of_names_is_a_warning() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    for (links, code, level) in [
        (1, 0, None),
        (3, 0, Some("warning: inode: link count is 3")),
        (0, 4, Some("inode: link count is 0")),
    ] {
        let mut writer = ImageWriter::new(0);
        let spec =
            InodeSpec { mode: REGULAR, layout: FLAT_PLAIN, size: 0, union: 0, links, after: &[] };
        let file = writer.inode(&spec);
        fs::write(&image, writer.finish_with_file(file)).unwrap();
        let checked = command(&["check", "--deep"], &image, &[]);
        assert_eq!(checked.code, code, "{links}: {}", checked.stderr);
        match level {
            None => assert_eq!(checked.stderr, ""),
            Some(text) => {
                assert!(checked.stderr.contains(&format!("/file: {text}")), "{}", checked.stderr)
            }
        }
    }
}

/// The format of 2019: data begins at the start of its block. Linux reads it up to 7.1.
#[test]
fn lz4_data_without_padding_is_a_warning() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    let mut writer = ImageWriter::new(0);
    let mut stream = lz4_run(4096);
    stream.resize(4096, 0);
    let block = writer.data(&stream);
    let file = writer.full(4096, [0; 8], &[head(1, 0, block)]);
    fs::write(&image, writer.finish_with_file(file)).unwrap();
    let checked = command(&["check", "--deep"], &image, &[]);
    assert_eq!(checked.code, 0, "{}", checked.stderr);
    checked.says("LZ4_0PADDING");
}
