//! The images in tests/corrupt, each of which once showed a defect: every command now refuses it or reads it safely.

use std::fs;
use std::path::Path;

use crate::common::fixture::Fixture;
use crate::common::hostile::{assert_handled, command};

#[test]
fn regression_images_are_handled() {
    let fixture = Fixture::empty();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corrupt");
    let images: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    let images: Vec<_> =
        images.into_iter().filter(|path| path.extension().is_some_and(|e| e == "erofs")).collect();
    assert!(!images.is_empty());
    for image in images {
        let name = image.file_stem().unwrap().to_string_lossy().into_owned();
        for args in [&["check"][..], &["ls"]] {
            assert_handled(&command(args, &image, &[]), &format!("{args:?} {name}"));
        }
        let target = fixture.path(&name);
        assert_handled(&command(&["extract"], &image, &[&target]), &format!("extract {name}"));
        assert_ne!(command(&["check"], &image, &[]).code, 0, "{name}: check finds nothing");
    }
}
