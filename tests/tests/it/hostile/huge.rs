//! Small images that describe exabytes: with holes, with blocks that many files share, with tables
//! that overlap. Each command ends within limits on time and memory, with a result or with a
//! message that names the reached limit.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferofs_tests::{Mount, Outcome, Run, ferofs_path, need};

use crate::common::fixture::Fixture;
use crate::common::image_writer::{
    BIT48, CHUNKED, CHUNKED_FILE, DIRECTORY, FLAT_PLAIN, FULL, ImageWriter, InodeSpec,
    LZ4_0PADDING, METABOX, REGULAR, dir_blocks, head, non_head,
};

/// A case: its name, and the image.
type Case = (&'static str, fn() -> Vec<u8>);

const CASES: [Case; 8] = [
    ("a chunk table in a hole of 2^60 bytes", chunks_in_a_hole),
    ("extent records in a hole of 2^60 bytes", records_in_a_hole),
    (
        "65,500 index records, each with a reference to the previous one, in an encoded metabox",
        long_way_back,
    ),
    ("2,000 inodes at the end of a cluster of 11 MiB", far_inodes),
    ("1,000 chunk tables that overlap", overlapping_tables),
    ("82 million entries in one shared block", shared_block),
    ("2,000 directories that share a block", || shared_directories(2_000)),
    ("a file of 2^62 bytes, all of them in one chunk of a hole", hole),
];

/// The bit of nids in the metabox.
const IN_METABOX: u64 = 1 << 63;
const BLOCK: u64 = 4096;
/// A command that takes longer is not limited by the image's size. Without optimization, the
/// slowest takes 45 seconds.
const HANG: Duration = Duration::from_secs(300);
/// The limit on resident memory in bytes, in addition to the size of the image.
const MEMORY: u64 = 128 << 20;

const EMPTY: InodeSpec<'static> =
    InodeSpec { mode: REGULAR, layout: FLAT_PLAIN, size: 0, union: u32::MAX, links: 1, after: &[] };

fn with_metabox(size: u64, encoded: &[u8], len: u64, lz4: bool, slot: u64) -> Vec<u8> {
    let mut writer = ImageWriter::new(LZ4_0PADDING | CHUNKED_FILE | BIT48 | METABOX);
    writer.metabox(size, encoded, len, lz4);
    writer.finish_with(&[(b"file", IN_METABOX | slot, 1)])
}

/// The inode is the last one in the first block of the metabox, so its chunk table is in the hole.
fn chunks_in_a_hole() -> Vec<u8> {
    let file =
        InodeSpec { mode: REGULAR, layout: CHUNKED, size: 1 << 62, union: 0, links: 1, after: &[] };
    let block = [vec![0; 126 * 32], file.bytes(126)].concat();
    with_metabox(1 << 60, &block, BLOCK, false, 126)
}

fn records_in_a_hole() -> Vec<u8> {
    // Layout EXTENTS with records of 4 bytes, one for each block.
    let after = [0, 0, 0, 0, 1, 0, 0, 0];
    let file =
        InodeSpec { mode: REGULAR, layout: FULL, size: 1 << 62, union: 0, links: 1, after: &after };
    let mut block = [vec![0; 122 * 32], file.bytes(122)].concat();
    block.resize(BLOCK as usize, 0);
    with_metabox(1 << 60, &block, BLOCK, false, 122)
}

/// An LZ4 block: `start`, then its last `period` bytes again for `repeated` bytes, then `end`.
fn lz4(start: &[u8], period: u16, repeated: usize, end: &[u8]) -> Vec<u8> {
    let extension = |len: usize| [vec![255; len / 255], vec![(len % 255) as u8]].concat();
    let mut block = vec![0xFF];
    block.extend(extension(start.len() - 15));
    block.extend_from_slice(start);
    block.extend_from_slice(&period.to_le_bytes());
    block.extend(extension(repeated - 19));
    block.push(0xF0);
    block.extend(extension(end.len() - 15));
    block.extend_from_slice(end);
    block
}

fn long_way_back() -> Vec<u8> {
    const RECORDS: usize = 65_500;
    let after = [[0; 8], [0; 8], head(1, 0, 1), non_head(1, 1)].concat();
    let size = RECORDS as u64 * BLOCK;
    let file =
        InodeSpec { mode: REGULAR, layout: FULL, size, union: 0, links: 1, after: &after }.bytes(0);
    let end = non_head(1, 1).repeat(2);
    let repeated = (RECORDS - 4) * 8;
    let len = (file.len() + repeated + end.len()) as u64;
    with_metabox(len, &lz4(&file, 8, repeated, &end), len, true, 0)
}

fn far_inodes() -> Vec<u8> {
    const ZEROES: usize = 11 << 20;
    let inodes: Vec<u8> = (0..2000).flat_map(|nid| EMPTY.bytes(nid)).collect();
    let len = (ZEROES + inodes.len()) as u64;
    let mut writer = ImageWriter::with_root(LZ4_0PADDING | BIT48 | METABOX, 0);
    writer.metabox(len, &lz4(&[0; 64], 1, ZEROES - 64, &inodes), len, true);
    let names: Vec<_> = (0..2000).map(|number| format!("{number:06}").into_bytes()).collect();
    let nid = |number: usize| IN_METABOX | (ZEROES / 32 + number * 2) as u64;
    let entries: Vec<_> =
        names.iter().enumerate().map(|(number, name)| (&name[..], nid(number), 1)).collect();
    with_root_blocks(writer, &entries)
}

/// The image whose root has these entries, in blocks outside the inode.
fn with_root_blocks(mut writer: ImageWriter, entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
    let root = writer.root;
    let all = [&[(&b"."[..], root, 2), (b"..", root, 2)][..], entries].concat();
    let blocks = dir_blocks(&all);
    let union = writer.data(&blocks);
    let size = blocks.len() as u64;
    writer.fill(
        root,
        &InodeSpec { mode: DIRECTORY, layout: FLAT_PLAIN, size, union, links: 2, after: &[] },
    );
    writer.finish()
}

fn overlapping_tables() -> Vec<u8> {
    const CHUNKS: usize = 1 << 18;
    let mut writer = ImageWriter::with_root(CHUNKED_FILE, 0);
    let size = CHUNKS as u64 * BLOCK;
    let file = InodeSpec { mode: REGULAR, layout: CHUNKED, size, union: 0, links: 1, after: &[] };
    let nids: Vec<_> = (0..1000).map(|_| writer.inode(&file)).collect();
    // Each table covers the inodes and the data after it.
    writer.data(&vec![0; CHUNKS * 4]);
    let names: Vec<_> = (0..1000).map(|number| format!("{number:06}").into_bytes()).collect();
    let entries: Vec<_> = names.iter().zip(&nids).map(|(name, nid)| (&name[..], *nid, 1)).collect();
    with_root_blocks(writer, &entries)
}

/// A block with as many entries as possible, all of them names of `nid`.
fn full_block(nid: u64) -> Vec<u8> {
    // Names of two bytes, without NUL, newline and slash.
    let names: Vec<_> =
        (0..291u16).map(|number| [(64 + number / 128) as u8, (128 + number % 128) as u8]).collect();
    let entries: Vec<_> = names.iter().map(|name| (&name[..], nid, 1)).collect();
    crate::common::image_writer::dirents(&entries)
}

fn shared_block() -> Vec<u8> {
    const BLOCKS: usize = 1 << 18;
    let mut writer = ImageWriter::new(CHUNKED_FILE);
    let file = writer.file(b"content");
    let block = writer.data(&full_block(file));
    let table: Vec<u8> = block.to_le_bytes().repeat(BLOCKS);
    let size = BLOCKS as u64 * BLOCK;
    let dir = writer.inode(&InodeSpec {
        mode: DIRECTORY,
        layout: CHUNKED,
        size,
        union: 0,
        links: 2,
        after: &table,
    });
    writer.finish_with(&[(b"dir", dir, 2)])
}

fn shared_directories(count: usize) -> Vec<u8> {
    let mut writer = ImageWriter::with_root(0, 0);
    let file = writer.file(b"content");
    let union = writer.data(&full_block(file));
    let dir =
        InodeSpec { mode: DIRECTORY, layout: FLAT_PLAIN, size: BLOCK, union, links: 2, after: &[] };
    let nids: Vec<_> = (0..count).map(|_| writer.inode(&dir)).collect();
    let names: Vec<_> = (0..count).map(|number| format!("{number:06}").into_bytes()).collect();
    let entries: Vec<_> = names.iter().zip(&nids).map(|(name, nid)| (&name[..], *nid, 2)).collect();
    with_root_blocks(writer, &entries)
}

fn hole() -> Vec<u8> {
    let mut writer = ImageWriter::new(0);
    let file = writer.inode(&InodeSpec { size: 1 << 62, ..EMPTY });
    writer.finish_with_file(file)
}

/// How a command violated a limit or a rule, if it did.
fn violation(outcome: &Outcome, image: u64) -> Option<String> {
    let problem = match outcome {
        Outcome { code: 128.., .. } => "was ended by a signal",
        Outcome { peak, .. } if *peak > MEMORY + image => "took too much memory",
        Outcome { code, .. }
            if *code != 0 && !outcome.has_error_message() && outcome.stdout.is_empty() =>
        {
            "printed no message"
        }
        Outcome { stderr, .. } if stderr.contains("panicked") => "panicked",
        _ => return None,
    };
    let stderr: String = outcome.stderr.chars().take(300).collect();
    Some(format!(
        "{problem}: {:?}, {} MiB, code {}: {stderr}",
        outcome.cpu,
        outcome.peak >> 20,
        outcome.code
    ))
}

fn run_all(fixture: &Fixture, name: &str, image: &Path, bytes: u64) -> Vec<String> {
    let target = fixture.path("target");
    let other = fixture.path("other");
    let commands: [(&[&str], Option<&Path>); 10] = [
        (&["check"], None),
        (&["check", "--deep"], None),
        (&["inspect"], None),
        (&["ls", "-R"], None),
        (&["ls", "-l"], None),
        (&["cat"], Some(Path::new("file"))),
        (&["diff"], Some(&other)),
        (&["diff"], Some(image)),
        (&["extract", "--tar", "/dev/null"], None),
        (&["extract"], Some(&target)),
    ];
    let mut found = Vec::new();
    for (args, more) in need::sample(&commands).copied() {
        let mut run = Run::limited(ferofs_path(), Some(6 << 30), HANG).args(args).arg(image);
        if let Some(more) = more {
            run = run.arg(more);
        }
        let outcome = run.run();
        eprintln!(
            "{name}: {args:?}: {:?}, {} MiB, code {}",
            outcome.cpu,
            outcome.peak >> 20,
            outcome.code
        );
        found.extend(
            violation(&outcome, bytes).map(|problem| format!("{name}: {args:?} {problem}")),
        );
        let _ = fs::remove_dir_all(&target);
    }
    found
}

#[test]
fn every_command_ends_within_its_limits() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    fs::write(fixture.path("other"), hole()).unwrap();
    let mut found = Vec::new();
    for (name, create) in &CASES {
        fs::write(&image, create()).unwrap();
        found.extend(run_all(&fixture, name, &image, fs::metadata(&image).unwrap().len()));
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// The image is a sparse file: it has the size that its addresses need, but stores almost no data.
#[test]
fn the_limits_of_a_sparse_image_follow_from_its_stored_size() {
    const SIZE: u64 = 1 << 40;
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    fs::write(fixture.path("other"), hole()).unwrap();
    let mut writer = ImageWriter::new(CHUNKED_FILE);
    let large = writer.inode(&InodeSpec { size: SIZE - (1 << 30), union: 20, ..EMPTY });
    let file = InodeSpec {
        mode: REGULAR,
        layout: CHUNKED,
        size: SIZE << 8,
        union: 0,
        links: 1,
        after: &[],
    };
    let table = writer.inode(&file);
    let mut bytes = writer.finish_with(&[(b"file", large, 1), (b"table", table, 1)]);
    bytes[1024 + 0x24..][..4].copy_from_slice(&((SIZE / BLOCK) as u32).to_le_bytes());
    fs::write(&image, &bytes).unwrap();
    File::options().write(true).open(&image).unwrap().set_len(SIZE).unwrap();
    let found = run_all(&fixture, "1 TiB", &image, bytes.len() as u64);
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_message_names_the_limit_and_the_option_raises_it() {
    const DIRECTORIES: usize = 8_000;
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    fs::write(&image, shared_directories(DIRECTORIES)).unwrap();
    let list = |limit: &str| {
        Run::limited(ferofs_path(), None, HANG)
            .args(["ls", "-R", "--work-limit", limit])
            .arg(&image)
            .run()
    };
    list("1").failure(1).says("--work-limit");
    for limit in ["8", "0"] {
        let names = list(limit).success().stdout.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(names, DIRECTORIES * 292);
    }
}

#[test]
fn a_signal_ends_an_endless_extraction() {
    let fixture = Fixture::empty();
    let image = fixture.path("image");
    for (name, create) in [CASES[0], CASES[1]] {
        fs::write(&image, create()).unwrap();
        for args in [&["extract"][..], &["extract", "--tar", "/dev/null"]] {
            let mut command = std::process::Command::new(ferofs_path());
            command.args(args).args(["--work-limit", "0"]).arg(&image).stderr(Stdio::piped());
            if args.len() == 1 {
                command.arg(fixture.path("target"));
            }
            let child = command.spawn().unwrap();
            std::thread::sleep(Duration::from_secs(1));
            let id = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
            rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{name}: {args:?}: {output:?}");
            assert!(output.stderr.ends_with(b": interrupted\n"), "{name}: {args:?}: {output:?}");
            let _ = fs::remove_dir_all(fixture.path("target"));
        }
    }
}

#[test]
fn the_daemon_answers_other_requests_during_expensive_ones() {
    require!(need::fuse());
    let fixture = Fixture::empty();
    let (image, dir) = (fixture.path("image"), fixture.directory("mount"));
    // Of the last two, the list is expensive, too, or the requests are not: there the list must
    // only end.
    for (number, (name, create)) in
        [CASES[0], CASES[1], CASES[2], CASES[3], CASES[7]].into_iter().enumerate()
    {
        fs::write(&image, create()).unwrap();
        let mount = Mount::fuse(ferofs_path(), &image, &dir).unwrap();
        let path = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
        let ended = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            // More expensive requests than the daemon has threads.
            for offset in 0..8u64 {
                let (path, ended) = (&path, &ended);
                scope.spawn(move || {
                    let file = File::open(path).unwrap();
                    let from = rustix::fs::SeekFrom::Hole(offset);
                    let _ = rustix::fs::seek(&file, from);
                    let _ = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(offset));
                    let _ = file.read_at(&mut [0; 4096], (1 << 61) + (offset << 20));
                    let _ = file.read_at(&mut [0; 4096], offset << 20);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            for entry in fs::read_dir(&dir).unwrap() {
                entry.unwrap().metadata().unwrap();
            }
            let ended = ended.load(Ordering::SeqCst);
            assert!(ended < 8 || number > 2, "{name}: the list came after all expensive requests");
        });
        let (code, stderr) = mount.unmount().unwrap();
        assert_eq!(code, Some(0), "{name}: {stderr}");
    }
}
