//! A tar archive becomes an image: whatever the archive is, the image that is made of it is sound.
#![no_main]

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::OnceLock;

use ferofs::build::{Compression, Options, SourceFormat, Whiteouts, build};
use ferofs::check;
use ferofs::read::{FileSource, Image};
use libfuzzer_sys::fuzz_target;

/// In memory, where that is possible.
fn room() -> &'static Path {
    static ROOM: OnceLock<tempfile::TempDir> = OnceLock::new();
    let new =
        || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary directory");
    ROOM.get_or_init(new).path()
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, archive)) = data.split_first() else { return };
    let (tar, image) = (room().join("tar"), room().join("image"));
    fs::write(&tar, archive).expect("room for the archive");
    let mut options = Options::new(&tar);
    options.source.format = SourceFormat::Tar;
    options.run.workers = NonZeroUsize::new(1);
    options.image.build_time = Some(0);
    options.image.uuid = Some([7; 16]);
    options.data.compression = if choice & 1 == 0 { None } else { Compression::lz4(0).ok() };
    options.source.whiteouts =
        [Whiteouts::Keep, Whiteouts::Overlay, Whiteouts::Apply][usize::from(choice >> 1) % 3];
    if build(&options, &image).is_err() {
        return;
    }
    let image = Image::open(FileSource::open(&image, 0).expect("the image")).expect("an image");
    let mut options = check::Options::default();
    options.workers = NonZeroUsize::new(1);
    let report = check::check(&image, &options).expect("an image that can be checked");
    assert!(report.findings.is_empty(), "{:?}", report.findings);
});
