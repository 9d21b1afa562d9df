//! Builds images of small trees, and extracts them.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::extract::boundary::boundary;
use crate::extract::{Existing, tar};
use ferofs_write as build;

#[test]
fn a_file_that_replaced_the_extracted_one_gets_no_attributes() {
    let dir = tempfile::tempdir().unwrap();
    let (source, target) = (dir.path().join("source"), dir.path().join("target"));
    let outside = dir.path().join("outside");
    for path in [&source, &target] {
        fs::create_dir_all(path).unwrap();
    }
    fs::write(&outside, "outside").unwrap();
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o600)).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        source.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::set_permissions(source.join("fifo"), fs::Permissions::from_mode(0o777)).unwrap();
    let path = dir.path().join("image");
    build::build(&build::Options::new(&source), &path).unwrap();
    let image = Image::open(ferofs_read::FileSource::open(&path, 0).unwrap()).unwrap();
    let inode = image.resolve("/fifo".as_ref(), false).unwrap();

    let options = Options::default();
    let extraction = Extraction {
        image: &image,
        options: &options,
        on_error: &|_, _| {},
        target: Target::create(&target).unwrap(),
        umask: 0,
        lost_xattrs: Mutex::default(),
        made: Mutex::default(),
        stopped: OnceLock::new(),
        panicked: AtomicBool::new(false),
    };
    let worker = Worker::new(&extraction);
    let here = extraction.target.open_dir(Path::new("")).unwrap();
    let item = TargetFile {
        dir: Path::new("").into(),
        file: File { name: "fifo".into(), inode, first: None },
    };
    // Simulates another process that replaces the fifo.
    symlink(&outside, target.join("fifo")).unwrap();
    worker.finish_special(&here, &item).unwrap_err();
    fs::remove_file(target.join("fifo")).unwrap();
    fs::write(target.join("other"), "other").unwrap();
    fs::hard_link(target.join("other"), target.join("fifo")).unwrap();
    worker.finish_special(&here, &item).unwrap_err();
    for path in [&outside, &target.join("other")] {
        assert_ne!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o777);
    }
}

/// An image's file, and what reading the byte at a position does.
struct Defective(Vec<u8>, u64, fn() -> std::io::Result<()>);

impl ferofs_read::Source for Defective {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_exact_at(&self, pos: u64, buf: &mut [u8]) -> std::io::Result<()> {
        if (pos..pos + buf.len() as u64).contains(&self.1) {
            self.2()?;
        }
        buf.copy_from_slice(&self.0[pos as usize..][..buf.len()]);
        Ok(())
    }
}

/// A large file and small ones in an image, and a position in the large one's content.
fn image_of_large_and_small(dir: &Path) -> (Vec<u8>, u64) {
    let (source, path) = (dir.join("source"), dir.join("image"));
    fs::create_dir(&source).unwrap();
    let content: Vec<u8> =
        (0..20 << 20).map(|n: u32| n.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    fs::write(source.join("large"), &content).unwrap();
    (0..2000).for_each(|n| fs::write(source.join(format!("small{n}")), "words").unwrap());
    build::build(&build::Options::new(&source), &path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let wanted = &content[6 << 20..][..64];
    let at = bytes.windows(64).position(|window| window == wanted).unwrap() as u64;
    (bytes, at)
}

#[test]
fn an_archive_ends_when_the_image_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, at) = image_of_large_and_small(dir.path());
    for workers in [1, 2, 8] {
        let image = Image::open(Defective(bytes.clone(), at, || Err(rustix::io::Errno::IO.into())))
            .unwrap();
        let options = Options { workers: NonZeroUsize::new(workers), ..Options::default() };
        let (root, mut out) = (image.root().unwrap(), Vec::new());
        let failed = tar::write_tar(&image, &root, Path::new("."), &mut out, &options, &|_, _| ())
            .unwrap_err();
        assert!(matches!(failed, Error::Io(_)), "{failed}");
        // It ends early, and without the blocks that end an archive.
        assert!(out.len() < bytes.len(), "{workers} workers: {}", out.len());
    }
}

#[test]
fn a_panic_of_a_reader_ends_the_extraction() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, at) = image_of_large_and_small(dir.path());
    for workers in [1, 2, 8] {
        let image = Image::open(Defective(bytes.clone(), at, || panic!("a defect"))).unwrap();
        let root = image.root().unwrap();
        let options = Options { workers: NonZeroUsize::new(workers), ..Options::default() };
        let target = dir.path().join(format!("target{workers}"));
        let panicked = catch(|| extract(&image, &root, &target, &options, &|_, _| ()));
        assert!(panicked.is_err(), "{workers} workers");
        let panicked = catch(|| {
            tar::write_tar(&image, &root, Path::new("."), std::io::sink(), &options, &|_, _| ())
        });
        assert!(panicked.is_err(), "{workers} workers, archive");
        let options = crate::check::Options {
            workers: NonZeroUsize::new(workers),
            ..crate::check::Options::default()
        };
        assert!(
            catch(|| crate::check::check(&image, &options)).is_err(),
            "{workers} workers, check"
        );
    }
}

/// Without the image's time, the file is replaced when the extraction is continued.
#[test]
fn a_file_without_an_attribute_does_not_get_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("source"), dir.path().join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "content").unwrap();
    let mut options = build::Options::new(&source);
    options.attributes.all_time = Some(build::Timestamp { secs: 1_000_000_000, nanos: 0 });
    // Linux takes names of at most 255 bytes.
    let line = format!("file x user.{}=value", "n".repeat(251));
    options.source.definitions = build::Definitions::parse(line.as_bytes()).unwrap();
    build::build(&options, &path).unwrap();
    let image = Image::open(ferofs_read::FileSource::open(&path, 0).unwrap()).unwrap();
    let (root, target) = (image.root().unwrap(), dir.path().join("target"));
    let options = Options { existing: Existing::SkipSame, ..Options::default() };
    for _ in 0..2 {
        let errors = Mutex::new(Vec::new());
        let noted = |_: &Path, error: &Error| errors.lock().push(error.to_string());
        extract(&image, &root, &target, &options, &noted).unwrap();
        let errors = errors.into_inner();
        assert!(errors.len() == 1 && errors[0].contains("set attribute user.n"), "{errors:?}");
        let time = rustix::fs::stat(target.join("file")).unwrap().st_mtime;
        assert_ne!(time, 1_000_000_000);
    }
}

#[test]
fn a_time_that_the_file_system_cannot_store_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("source/old");
    fs::create_dir_all(dir.path().join("source")).unwrap();
    fs::write(&old, "x").unwrap();
    let early = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1000);
    fs::File::options().write(true).open(&old).unwrap().set_modified(early).unwrap();
    let path = dir.path().join("image");
    build::build(&build::Options::new(dir.path().join("source")), &path).unwrap();
    let image = Image::open(ferofs_read::FileSource::open(&path, 0).unwrap()).unwrap();
    let inode = image.resolve("/old".as_ref(), false).unwrap();
    let stored = |path: &Path| metadata::check_time(&inode, path, || rustix::fs::stat(path));
    stored(&old).unwrap();
    let error = stored(&path).unwrap_err().to_string();
    assert!(error.contains("instead of -1000 seconds"), "{error}");
}

#[test]
fn a_piece_does_not_grow_with_an_extent_of_the_packed_inode() {
    const SIZE: u32 = 1 << 31;
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("source"), dir.path().join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), "words ".repeat(1000)).unwrap();
    let mut options = build::Options::new(&source);
    let mut compression = build::Compression::lz4(0).unwrap();
    compression.fragments = build::Fragments::All;
    options.data.compression = Some(compression);
    build::build(&options, &path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let image = Image::open(bytes.clone()).unwrap();
    let packed = image.inode(image.superblock().packed.unwrap()).unwrap();
    let file = image.resolve("/file".as_ref(), false).unwrap();
    let start = |inode: &Inode| usize::try_from(inode.place().pos.get()).unwrap();
    // The packed inode becomes a hole that is not compressed, and the file a fragment of all of it.
    bytes[start(&packed)] &= 1;
    bytes[start(&packed) + 16..][..4].fill(0xff);
    for inode in [&packed, &file] {
        bytes[start(inode) + 8..][..4].copy_from_slice(&SIZE.to_le_bytes());
    }
    let mut options = ferofs_read::OpenOptions::default();
    options.verify_checksum = false;
    let image = Image::open_with(Box::new(bytes), Vec::new(), &options).unwrap();
    let file = image.resolve("/file".as_ref(), false).unwrap();
    let extent =
        image.extents(&file, ferofs_read::FileOffset::new(0)).unwrap().next().unwrap().unwrap();
    assert!(
        matches!(extent.data, ferofs_read::ExtentData::Fragment { .. })
            && extent.len == u64::from(SIZE)
    );
    assert_eq!(boundary(&image, &file, 1 << 20).unwrap(), 1 << 20);
}
