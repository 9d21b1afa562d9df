use std::os::fd::AsFd;

use super::*;

#[test]
fn an_error_of_a_temporary_file_names_its_directory() {
    // Open for reading only, so that each write fails.
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, "").unwrap();
    let file = File::open(&path).unwrap();
    let target = Target::Stream(dir.path().to_owned());
    let mut output = Output::new(file, Path::new("standard output"), target, 0);
    output.append(b"data").unwrap();
    let error = output.finish().unwrap_err().to_string();
    assert!(
        error.contains(dir.path().to_str().unwrap()) && error.contains("temporary file"),
        "{error}"
    );
    assert!(!error.contains("standard output"), "{error}");
}

/// Shows all that is written, in one piece.
#[derive(Debug, Default)]
struct Recorder(parking_lot::Mutex<Vec<u8>>);

impl Sealer for Recorder {
    fn alignment(&self) -> u64 {
        4096
    }

    fn written(&self, position: u64, bytes: &[u8]) {
        let (mut all, start) = (self.0.lock(), position as usize);
        let len = all.len().max(start + bytes.len());
        all.resize(len, 0xff);
        all[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn finish(
        &self,
        image: &dyn ferofs_read::Source,
        len: u64,
        append: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let mut bytes = vec![0; len as usize];
        image.read_exact_at(0, &mut bytes)?;
        assert!(bytes == self.0.lock()[..bytes.len()], "the sealer has not seen all bytes");
        append(b"seal")
    }
}

/// The same steps with an output and with bytes in memory: a new file and one that is written in
/// place, with and without other bytes before the image, and with a sealer.
#[test]
fn all_steps_of_writing_give_the_same_bytes() {
    enum Step {
        Append(usize),
        PadTo(usize),
        Rewind(usize),
        Copy(usize, usize),
        Overwrite(usize, usize),
    }
    use Step::{Append, Copy, Overwrite, PadTo, Rewind};
    let dir = tempfile::tempdir().unwrap();
    let content: Vec<u8> = (0..3 << 20_u32).map(|n| (n / 3) as u8).collect();
    let (source, path) = (dir.path().join("source"), dir.path().join("image"));
    std::fs::write(&source, &content).unwrap();
    let source = File::open(&source).unwrap();
    let read = |bytes: &mut [u8], at| {
        source.read_exact_at(bytes, at).map_err(|e| Error::io("read", "source", e))
    };
    for case in 0..8 {
        let (in_place, offset, has_sealer) = (case & 1 != 0, (case & 2) * 11, case & 4 != 0);
        std::fs::write(&path, content.repeat(2)).unwrap();
        let old = File::options().write(true).open(&path).unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&old);
        let name =
            if in_place { format!("/proc/self/fd/{descriptor}").into() } else { path.clone() };
        let (mut output, mut expected) = (Output::create(&name, offset).unwrap(), Vec::new());
        output.seal_with(has_sealer.then(|| Arc::new(Recorder::default()) as Arc<dyn Sealer>));
        for step in [
            Append(100_000),
            PadTo(131_072),
            PadTo(131_071),
            Append((2 << 20) + 500_000),
            Rewind(2_000_000),
            Append(10),
            Rewind(2_000_005),
            Copy(1000, (1 << 20) + 700_000),
            Overwrite(5000, 30),
            PadTo(5 << 20),
            Append(1),
        ] {
            match step {
                Append(len) => {
                    output.append(&content[..len]).unwrap();
                    expected.extend_from_slice(&content[..len]);
                }
                PadTo(position) => {
                    output.pad_to(position as u64).unwrap();
                    expected.resize(position.max(expected.len()), 0);
                }
                Rewind(position) => {
                    output.rewind(position as u64).unwrap();
                    expected.truncate(position);
                }
                Copy(at, len) => {
                    output.copy(source.as_fd(), at as u64, len as u64, &read).unwrap();
                    expected.extend_from_slice(&content[at..at + len]);
                }
                Overwrite(at, len) => {
                    output.overwrite(at as u64, &content[..len]).unwrap();
                    expected[at..at + len].copy_from_slice(&content[..len]);
                }
            }
            assert_eq!(output.position(), expected.len() as u64);
        }
        assert!(output.start(6000).unwrap() == expected[..6000]);
        output.write_superblock_area(b"superblock").unwrap();
        expected[..10].copy_from_slice(b"superblock");
        output.seal().unwrap();
        if has_sealer {
            expected.resize(expected.len().next_multiple_of(4096), 0);
            expected.extend_from_slice(b"seal");
        }
        output.finish().unwrap();
        let (start, image) = (&content[..offset as usize], std::fs::read(&path).unwrap());
        assert!(image == [start, &expected].concat(), "case {case}");
    }
}

#[test]
fn the_bytes_that_a_patch_appends_are_apart_from_the_image() {
    let dir = tempfile::tempdir().unwrap();
    let mut output = Output::region(dir.path(), 1 << 30).unwrap();
    output.append(b"appended").unwrap();
    assert_eq!(output.position(), (1 << 30) + 8);
    let mut bytes = [0; 8];
    ferofs_read::Source::read_exact_at(&output.appended(1 << 30).unwrap(), 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"appended");
}

#[test]
fn devices_are_not_left_out_of_the_tree() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    assert_eq!(OwnFile::with_name(&file), None);
    std::fs::write(&file, "").unwrap();
    assert!(OwnFile::with_name(&file).is_some());
    assert_eq!(OwnFile::with_name(Path::new("/dev/null")), None);
}

#[test]
fn long_gaps_are_holes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let mut output = Output::create(&path, 0).unwrap();
    output.append(b"before").unwrap();
    output.pad_to(100 << 20).unwrap();
    output.append(b"behind").unwrap();
    output.pad_to(200 << 20).unwrap();
    output.finish().unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(
        (bytes.len(), &bytes[..7], &bytes[100 << 20..][..7]),
        (200 << 20, &b"before\0"[..], &b"behind\0"[..])
    );
    assert!(
        std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512
            < 100 << 20
    );
}
