//! Power cuts at each point of the sequence of writes, and malformed patches.

mod base;
mod delta;
mod faults;
mod in_memory;
mod metabox;
mod prediction;
mod rebuilt;
mod reencoding;
mod resume;
mod sequences;
mod xattrs;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::*;
use ferofs::check;
use ferofs::patch::{CreateOptions, Encoding, PatchSummary, create, squash};
use ferofs_read::walk::Walk;
use ferofs_read::{Cancel, FileOffset, Image, Source};
use ferofs_write::{self as build, Compression};

/// The time of all files, so that the results do not depend on the clock.
const TIME: Option<build::Timestamp> = Some(build::Timestamp { secs: 7, nanos: 0 });

/// A directory with an old image, a new tree, and a patch.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new(compression: Option<Compression>) -> Self {
        Self::with(compression, 0)
    }

    /// With a file of `large` bytes in both trees, which an earlier patch added. From 2 MiB on the
    /// new root goes into free slots of the base.
    fn with(compression: Option<Compression>, large: usize) -> Self {
        let fixture = Self { dir: tempfile::tempdir().unwrap() };
        let (old, new) = (fixture.path("old"), fixture.path("new"));
        for dir in [&old, &new] {
            std::fs::create_dir_all(dir.join("a/b")).unwrap();
            std::fs::write(dir.join("a/same"), "same ".repeat(5000)).unwrap();
            std::fs::write(dir.join("a/b/text"), text(200_000)).unwrap();
        }
        std::fs::write(old.join("gone"), "gone").unwrap();
        std::fs::write(new.join("come"), "come ".repeat(9000)).unwrap();
        let mut changed = text(200_000);
        changed[100_000] ^= 1;
        changed.extend_from_slice(b"more");
        std::fs::write(new.join("a/b/text"), changed).unwrap();
        let mut options = build::Options::new(old);
        options.data.compression = compression;
        options.attributes.all_time = TIME;
        build::build(&options, fixture.path("image")).unwrap();
        if large > 0 {
            for dir in ["old", "new"] {
                std::fs::write(fixture.path(dir).join("large"), text(large)).unwrap();
            }
            fixture.create("old", "grow").unwrap();
            let (medium, grow) =
                (FileMedium::open(fixture.path("image")), Patch::open(fixture.path("grow")));
            apply_to(&medium.unwrap(), &grow.unwrap()).unwrap();
        }
        fixture.create("new", "patch").unwrap();
        fixture
    }

    /// Makes a patch from the image to a directory.
    fn create(&self, new: &str, patch: &str) -> ferofs_write::Result<PatchSummary> {
        self.create_at(None, new, patch)
    }

    /// As [`Self::create`], at a level of Zstandard: a low one for large files.
    fn create_at(
        &self,
        level: Option<i32>,
        new: &str,
        patch: &str,
    ) -> ferofs_write::Result<PatchSummary> {
        let mut options = CreateOptions::new(self.path(new));
        options.level = level;
        options.build.attributes.all_time = TIME;
        create(self.path("image"), &options, self.path(patch))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn image(&self) -> Vec<u8> {
        std::fs::read(self.path("image")).unwrap()
    }

    fn patch(&self) -> Patch {
        Patch::open(self.path("patch")).unwrap()
    }
}

/// Bytes that can be compressed a little.
fn text(len: usize) -> Vec<u8> {
    (0..)
        .map(|n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as u8 + b'a')
        .take(len)
        .collect()
}

/// All that an image shows, after it was checked.
fn shown(bytes: Vec<u8>) -> Vec<String> {
    let image = Image::open(bytes).unwrap();
    let report = check::check(&image, &check::Options::default()).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let mut all: Vec<String> = Walk::new(&image)
        .map(|walked| {
            let walked = walked.unwrap();
            let inode = walked.inode.unwrap();
            let mut content = vec![0; if inode.is_dir() { 0 } else { inode.size() as usize }];
            image.read_at(&inode, FileOffset::new(0), &mut content).unwrap();
            let (disk, hash) = (inode.on_disk(), blake3::hash(&content));
            format!("{:?} {:o} {} {:?} {hash}", walked.path, disk.mode(), disk.nlink, disk.mtime)
        })
        .collect();
    all.sort();
    all
}

/// [`apply`], which nothing cancels.
fn apply_to<M: Medium>(medium: &M, patch: &Patch) -> crate::Result<()> {
    apply(medium, patch, TrailingData::Keep, &Cancel::default())
}

fn applied(image: &[u8], patch: &Patch) -> Vec<u8> {
    let medium = Recorder::new(image.to_vec());
    apply_to(&medium, patch).unwrap();
    medium.bytes.into_inner().unwrap()
}

enum Event {
    Write(u64, Vec<u8>),
    Sync,
}

/// A medium in memory that records its writes and syncs, and can fail.
struct Recorder {
    bytes: Mutex<Vec<u8>>,
    events: Mutex<Vec<Event>>,
    /// Bytes that it can hold.
    limit: u64,
    /// The number of writes and syncs until one fails.
    writes: Mutex<usize>,
    /// Only that one fails, and later ones succeed.
    fails_once: bool,
    /// Called before each write.
    on_write: Box<dyn Fn() + Send + Sync>,
}

impl Recorder {
    fn new(bytes: Vec<u8>) -> Self {
        let (bytes, events, writes) = (Mutex::new(bytes), Mutex::default(), Mutex::new(usize::MAX));
        Self {
            bytes,
            events,
            limit: u64::MAX,
            writes,
            fails_once: false,
            on_write: Box::new(|| ()),
        }
    }

    fn count(&self) -> io::Result<()> {
        let mut left = self.writes.lock().unwrap();
        match left.checked_sub(1) {
            Some(fewer) => *left = fewer,
            None if self.fails_once => *left = usize::MAX,
            None => return Err(io::ErrorKind::StorageFull.into()),
        }
        if *left == usize::MAX { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Source for Recorder {
    fn size(&self) -> u64 {
        self.bytes.lock().unwrap().size()
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> io::Result<()> {
        self.bytes.lock().unwrap().read_exact_at(pos, buf)
    }
}

impl Medium for Recorder {
    fn reserve(&self, end: u64) -> io::Result<()> {
        if end > self.limit { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn release(&self, size: u64) -> io::Result<()> {
        self.bytes.lock().unwrap().resize(size as usize, 0);
        Ok(())
    }

    fn write_all_at(&self, pos: u64, new: &[u8]) -> io::Result<()> {
        (self.on_write)();
        self.count()?;
        write(&mut self.bytes.lock().unwrap(), pos, new);
        self.events.lock().unwrap().push(Event::Write(pos, new.to_vec()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.count()?;
        self.events.lock().unwrap().push(Event::Sync);
        Ok(())
    }

    fn reader(&self) -> io::Result<Box<dyn Source>> {
        Ok(Box::new(self.bytes.lock().unwrap().clone()))
    }
}

fn write(bytes: &mut Vec<u8>, pos: u64, new: &[u8]) {
    let end = pos as usize + new.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[pos as usize..end].copy_from_slice(new);
}

/// Divides a write into sectors.
fn sectors(pos: u64, new: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut sectors = Vec::new();
    let mut at = pos;
    while at < pos + new.len() as u64 {
        let end = ((at / 512 + 1) * 512).min(pos + new.len() as u64);
        sectors.push((at, new[(at - pos) as usize..(end - pos) as usize].to_vec()));
        at = end;
    }
    sectors
}

#[test]
fn a_power_cut_leaves_the_old_tree_or_the_new_one() {
    for compression in [None, Some(Compression::lz4(0).unwrap())] {
        let fixture = Fixture::new(compression);
        let patch = fixture.patch();
        let recorder = Recorder::new(fixture.image());
        apply_to(&recorder, &patch).unwrap();
        let (old, new) = (shown(fixture.image()), shown(recorder.bytes.lock().unwrap().clone()));
        assert_ne!(old, new);
        let events = recorder.events.into_inner().unwrap();
        let mut durable = fixture.image();
        // Sectors that were written since the last sync: any of them may have reached the disk.
        let mut open: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut states, mut seed) = (0, 1u64);
        let mut check_cut = |durable: &[u8], open: &[(u64, Vec<u8>)]| {
            for round in 0..6 {
                let mut cut = durable.to_vec();
                for (number, (pos, bytes)) in open.iter().enumerate() {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    // Keep all writes, the first half, or any of them.
                    if round == 0
                        || round == 1 && number < open.len() / 2
                        || round > 1 && seed >> 63 == 1
                    {
                        write(&mut cut, *pos, bytes);
                    }
                }
                let now = shown(cut.clone());
                assert!(now == old || now == new, "{round}");
                if now == old {
                    // The patch can be applied again.
                    let again = Recorder::new(cut);
                    apply_to(&again, &patch).unwrap();
                    assert_eq!(shown(again.bytes.into_inner().unwrap()), new);
                }
                states += 1;
            }
        };
        check_cut(&durable, &open);
        for event in &events {
            match event {
                Event::Sync => {
                    for (pos, bytes) in open.drain(..) {
                        write(&mut durable, pos, &bytes);
                    }
                }
                Event::Write(pos, bytes) => open.extend(sectors(*pos, bytes)),
            }
            check_cut(&durable, &open);
        }
        assert!(states >= 30, "{states}");
        let last = events.iter().rev().find_map(|event| match event {
            Event::Write(pos, bytes) => Some((*pos, bytes.len())),
            Event::Sync => None,
        });
        assert_eq!(last, Some((1024, 512)));
    }
}

#[test]
fn a_power_cut_during_a_rollback_leaves_one_of_the_two_trees() {
    let fixture = Fixture::new(None);
    let recorder = Recorder::new(fixture.image());
    apply_to(&recorder, &fixture.patch()).unwrap();
    let patched = recorder.bytes.lock().unwrap().clone();
    let (old, new) = (shown(fixture.image()), shown(patched.clone()));
    recorder.events.lock().unwrap().clear();
    assert_eq!(rollback(&recorder, None, TrailingData::Keep, 7).unwrap(), 0);
    let mut cut = patched;
    for event in recorder.events.lock().unwrap().iter() {
        if let Event::Write(pos, bytes) = event {
            for (pos, bytes) in sectors(*pos, bytes) {
                let now = shown(cut.clone());
                assert!(now == old || now == new);
                write(&mut cut, pos, &bytes);
            }
        }
    }
    assert_eq!(shown(cut), old);
    assert_eq!(rollback(&recorder, Some(1), TrailingData::Keep, 8).unwrap(), 1);
    assert_eq!(shown(recorder.bytes.lock().unwrap().clone()), new);
    let states = log(&recorder).unwrap();
    let origins: Vec<Origin> = states.iter().map(|state| state.origin).collect();
    assert_eq!(origins, [Origin::Built, Origin::Patch, Origin::Rollback(0), Origin::Rollback(1)]);
    assert_eq!(states.iter().filter(|state| state.current).count(), 1);
    assert!(matches!(
        rollback(&recorder, Some(9), TrailingData::Keep, 0),
        Err(crate::Error::Patch(PatchFault::NoSuchState(9)))
    ));
}

#[test]
fn a_full_medium_keeps_the_image() {
    let fixture = Fixture::new(Some(Compression::lz4(0).unwrap()));
    let (image, patch) = (fixture.image(), fixture.patch());
    let small = Recorder { limit: image.len() as u64 + 1, ..Recorder::new(image.clone()) };
    let refused = apply_to(&small, &patch).unwrap_err();
    assert!(refused.to_string().contains("no space for the new image"), "{refused}");
    assert_eq!(*small.bytes.lock().unwrap(), image);
    let full = Recorder::new(image.clone());
    *full.writes.lock().unwrap() = 0;
    let failed = apply_to(&full, &patch).unwrap_err();
    assert!(
        matches!(failed, crate::Error::Unfinished { image: crate::AfterFailure::Unchanged, .. }),
        "{failed}"
    );
    assert_eq!(*full.bytes.lock().unwrap(), image);
}

#[test]
fn a_base_with_another_byte_is_refused() {
    let fixture = Fixture::new(Some(Compression::lz4(0).unwrap()));
    let (image, patch) = (fixture.image(), fixture.patch());
    for number in 0..64 {
        let mut other = image.clone();
        let at = number * (image.len() - 1) / 63;
        other[at] ^= 1;
        let base = Recorder::new(other.clone());
        let refused = apply_to(&base, &patch);
        assert!(refused.is_err(), "byte {at}");
        assert_eq!(*base.bytes.lock().unwrap(), other, "byte {at}");
        assert!(overlay(Arc::new(other), &patch, &Cancel::default()).is_err(), "byte {at}");
    }
}

#[test]
fn malformed_patches_are_refused() {
    let fixture = Fixture::new(None);
    let bytes = std::fs::read(fixture.path("patch")).unwrap();
    let image = fixture.image();
    let mut refused = 0;
    for number in 0..bytes.len().min(300) {
        let mut lie = bytes.clone();
        let at = number * bytes.len() / bytes.len().min(300);
        lie[at] ^= 1 << (number % 8);
        assert!(Patch::new(Box::new(lie)).is_err(), "byte {at}");
    }
    let lengths = crate::tests::base::parts(&bytes);
    let (lengths, tables) =
        ([lengths.changes.len(), lengths.relocations.len()], lengths.header.len());
    for number in 0..900 {
        // A bit of the decoded header, of a list, or of the pieces, with the right digest.
        let bit = 1 << (number % 8);
        let at = |len: usize| number % 300 * len / 300;
        let lie = match number / 300 {
            0 => crate::tests::base::edited(&bytes, |parts| parts.header[at(tables)] ^= bit),
            1 if number % 2 == 0 => {
                crate::tests::base::edited(&bytes, |parts| parts.changes[at(lengths[0])] ^= bit)
            }
            1 => {
                crate::tests::base::edited(&bytes, |parts| parts.relocations[at(lengths[1])] ^= bit)
            }
            _ => {
                let mut lie = bytes[..bytes.len() - 32].to_vec();
                let len = lie.len();
                lie[at(len)] ^= bit;
                crate::tests::base::with_digest(lie)
            }
        };
        let at = number;
        let Ok(patch) = Patch::new(Box::new(lie)) else {
            refused += 1;
            continue;
        };
        let _ = patch.changes();
        let base = Recorder::new(image.clone());
        if apply_to(&base, &patch).is_err() {
            refused += 1;
            assert_eq!(base.bytes.lock().unwrap()[1024..1536], image[1024..1536], "byte {at}");
        }
    }
    // The fields for the time and for the lengths shown to people do not change the result.
    assert!(refused > 400, "{refused}");
    for len in [0, 7, 8, 100, 240, bytes.len() - 1] {
        assert!(Patch::new(Box::new(bytes[..len].to_vec())).is_err(), "{len}");
    }
}

#[test]
fn a_patch_describes_its_base_and_result() {
    let fixture = Fixture::new(None);
    let patch = fixture.patch();
    let kinds = |path: &str| {
        let changes = patch.changes().unwrap();
        changes.iter().find(|change| change.path == path.as_bytes()).map(|change| change.kind)
    };
    assert_eq!(kinds("come"), Some(ChangeKind::Added));
    assert_eq!(kinds("gone"), Some(ChangeKind::Removed));
    assert_eq!(kinds("a/b/text"), Some(ChangeKind::Content));
    assert_eq!(kinds("a/same"), None);
    assert_eq!(patch.base_size(), fixture.image().len() as u64);
    let same = fixture.create("old", "none");
    assert!(matches!(same, Err(ferofs_write::Error::Patch(ferofs::patch::PatchFault::Unchanged))));
    assert!(!Path::new(&fixture.path("none")).exists());
}
