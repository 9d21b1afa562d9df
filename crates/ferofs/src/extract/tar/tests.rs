//! Tests archives of small images.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::symlink;

use super::*;
use ferofs_read::FileSource;
use ferofs_write as build;

fn image(fill: impl FnOnce(&Path)) -> Image {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    fs::create_dir(&source).unwrap();
    fill(&source);
    let path = dir.path().join("image");
    build::build(&build::Options::new(&source), &path).unwrap();
    Image::open(FileSource::open(&path, 0).unwrap()).unwrap()
}

fn archive(image: &Image, workers: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = Options { workers: NonZeroUsize::new(workers), ..Options::default() };
    let on_error = |path: &Path, error: &Error| panic!("{}: {error}", path.display());
    write_tar(image, &image.root().unwrap(), Path::new(""), &mut bytes, &options, &on_error)
        .unwrap();
    bytes
}

#[test]
fn any_number_of_workers_writes_the_same() {
    let image = image(|source| {
        fs::write(source.join("large"), "words ".repeat(1_000_000)).unwrap();
        for n in 0..300 {
            fs::write(source.join(n.to_string()), n.to_string().repeat(n * 7)).unwrap();
        }
        symlink("x".repeat(300), source.join("link")).unwrap();
    });
    let one = archive(&image, 1);
    assert_eq!(one.len() % 10240, 0);
    assert!(one[one.len() - 1024..].iter().all(|byte| *byte == 0));
    assert!(one == archive(&image, 4));
}

#[test]
fn a_hole_is_not_written() {
    let image =
        image(|source| fs::File::create(source.join("hole")).unwrap().set_len(1 << 40).unwrap());
    let bytes = archive(&image, 1);
    assert!(bytes.len() <= 10240, "{}", bytes.len());
    assert!(bytes.windows(20).any(|window| window == b"GNU.sparse.realsize="));
}

#[test]
fn a_writer_that_fails_ends_it() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let image = image(|source| fs::write(source.join("large"), vec![1; 20 << 20]).unwrap());
    let root = image.root().unwrap();
    let result = write_tar(&image, &root, Path::new(""), Full, &Options::default(), &|_, _| {});
    assert!(matches!(result, Err(Error::Io(_))));
}

/// At its first byte, starts and cancels another archive of the same image.
struct BesideCancelled<'a>(&'a Image, Vec<u8>);

impl Write for BesideCancelled<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1.is_empty() {
            let options = Options::default();
            options.cancel.cancel();
            let root = self.0.root().unwrap();
            let result =
                write_tar(self.0, &root, Path::new(""), std::io::sink(), &options, &|_, _| {});
            assert!(matches!(result, Err(Error::Interrupted)));
        }
        self.1.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn cancelling_one_archive_leaves_another_of_the_same_image() {
    let image = image(|source| fs::write(source.join("large"), vec![1; 20 << 20]).unwrap());
    let (root, mut out) = (image.root().unwrap(), BesideCancelled(&image, Vec::new()));
    let on_error = |path: &Path, error: &Error| panic!("{}: {error}", path.display());
    write_tar(&image, &root, Path::new(""), &mut out, &Options::default(), &on_error).unwrap();
    assert!(out.1 == archive(&image, 1));
}
