//! Holes in compressed files, in the three forms of the format: images that are written field by
//! field are shown as they are by each way to read them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ferofs_tests::{Mount, ferofs, ferofs_path, need};
use rustix::fs::SeekFrom;

use crate::common::fixture::Fixture;
use crate::common::hostile::command;
use crate::common::image_writer::{
    BIG_PCLUSTER, BIT48, COMPACT, FULL, ImageWriter, InodeSpec, LZ4_0PADDING, REGULAR, head,
    non_head,
};

/// Blocks of each file: the first and the last hold data.
const BLOCKS: u64 = 128;
/// `Z_EROFS_LI_HOLE`.
const HOLE: u16 = 1 << 14;

/// Lets the map of a file of `BLOCKS` blocks be written by `map`, which gets the address of a block
/// of data, for the layout.
fn image(features: u32, layout: u16, map: impl FnOnce(u32) -> Vec<u8>) -> Vec<u8> {
    let mut writer = ImageWriter::new(features);
    if features & BIG_PCLUSTER != 0 {
        writer.configure(1, &[14, 0, 0xff, 0xff, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
    let block = writer.data(&[0x55; 4096]);
    let size = BLOCKS * 4096;
    let file = writer.inode(&InodeSpec {
        mode: REGULAR,
        layout,
        size,
        union: 2,
        links: 1,
        after: &map(block),
    });
    writer.finish_with_file(file)
}

/// The mark of a HEAD, which gives an address beyond the image.
fn marked() -> Vec<u8> {
    image(LZ4_0PADDING, FULL, |block| {
        let last = BLOCKS as u16 - 1;
        let hole = (2..last).map(|lcn| non_head(lcn - 1, last - lcn));
        let records: Vec<[u8; 8]> = [head(0, 0, block), head(1 | HOLE, 0, 9999)]
            .into_iter()
            .chain(hole)
            .chain([head(0, 0, block)])
            .collect();
        [&[0; 16], records.as_flattened()].concat()
    })
}

/// A compact index in packs of two records, with a block count of 0.
fn counted() -> Vec<u8> {
    image(LZ4_0PADDING | BIG_PCLUSTER, COMPACT, |block| {
        let (plain, head1, non_head) = (0u16, 1 << 12, 2 << 12);
        let last = BLOCKS as u16 - 1;
        let record = |lcn: u16| match lcn {
            0 => plain,
            1 => head1,
            2 => non_head | 0x800,
            _ if lcn == last => plain,
            // The second record of a pack has the distance to the next HEAD.
            _ if lcn % 2 == 1 => non_head | (last - lcn),
            _ => non_head | (lcn - 1),
        };
        // Both flags of big pclusters.
        let mut map = vec![0, 0, 0, 0, 6, 0, 0, 0];
        for pack in 0..BLOCKS as u16 / 2 {
            map.extend(record(2 * pack).to_le_bytes());
            map.extend(record(2 * pack + 1).to_le_bytes());
            map.extend(block.to_le_bytes());
        }
        map
    })
}

/// A record of 16 bytes without a length.
fn record() -> Vec<u8> {
    image(LZ4_0PADDING | BIT48, FULL, |block| {
        let last = (BLOCKS as u32 - 1) * 4096;
        let records = [[4096, block * 4096, 0, 0], [0, 0, 0, 4096], [4096, block * 4096, 0, last]];
        let records: Vec<u8> =
            records.iter().flatten().flat_map(|field: &u32| field.to_le_bytes()).collect();
        [&[3, 0, 0, 0, 5, 0, 0, 0][..], &[0; 8], &records].concat()
    })
}

/// The first data and the hole between the blocks of data.
fn assert_sparse(path: &Path) {
    let file = fs::File::open(path).unwrap();
    let seek = |from| rustix::fs::seek(&file, from).unwrap();
    assert_eq!(seek(SeekFrom::Data(0)), 0);
    assert_eq!(seek(SeekFrom::Hole(0)), 4096);
    assert_eq!(seek(SeekFrom::Data(5000)), (BLOCKS - 1) * 4096);
    assert_eq!(file.metadata().unwrap().blocks(), 16);
}

#[test]
fn all_forms_are_shown_as_holes() {
    let fixture = Fixture::empty();
    let mut content = vec![0; BLOCKS as usize * 4096];
    content[..4096].fill(0x55);
    content[(BLOCKS as usize - 1) * 4096..].fill(0x55);
    fixture.write("file", &content);
    for (name, bytes) in [("marked", marked()), ("counted", counted()), ("record", record())] {
        let image = fixture.path(name);
        fs::write(&image, bytes).unwrap();
        let checked = command(&["check", "--deep"], &image, &[]);
        assert_eq!(checked.code, 0, "{name}: {}", checked.stderr);
        // Only Linux from 7.2 on reads zeroes where the pcluster is not one of zeroes.
        assert_eq!(
            checked.stderr.contains("before 7.2"),
            name != "record",
            "{name}: {}",
            checked.stderr
        );
        let target = fixture.path(&format!("{name}-extracted"));
        command(&["extract"], &image, &[&target]).success();
        assert_eq!(fs::read(target.join("file")).unwrap(), content, "{name}");
        assert_sparse(&target.join("file"));
        let cat = ferofs!("cat", &image, "file").success();
        assert_eq!(cat.stdout, content, "{name}");
        let shown = ferofs!("inspect --path /file", &image).success().text();
        assert!(shown.contains("  hole\n") && shown.contains("3 extents"), "{name}: {shown}");
        ferofs!("diff", &image, &target).success();
        let archive = fixture.path(&format!("{name}.tar"));
        ferofs!("extract --tar", &archive, &image).success();
        assert!(fs::metadata(&archive).unwrap().len() < 64 << 10, "{name}");
        if need::fuse() {
            let mount =
                Mount::fuse(ferofs_path(), &image, &fixture.directory(&format!("{name}-mount")))
                    .unwrap();
            assert_sparse(&mount.path().join("file"));
            let mut read = Vec::new();
            fs::File::open(mount.path().join("file")).unwrap().read_to_end(&mut read).unwrap();
            assert_eq!(read, content, "{name}");
            mount.unmount().unwrap();
        }
    }
}
