use std::fs;

use super::*;
use ferofs_read::FileSource;
use ferofs_write as build;

fn image(files: &[&str]) -> Image {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    for file in files {
        let path = source.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    fs::hard_link(source.join(files[0]), source.join("again")).unwrap();
    let image = dir.path().join("image");
    build::build(&build::Options::new(&source), &image).unwrap();
    Image::open(FileSource::open(image, 0).unwrap()).unwrap()
}

fn walk(image: &Image, include: &[&str], exclude: &[&str]) -> Vec<String> {
    let select = Selection::new(include, exclude).unwrap();
    let mut walk = Walk::new(image, &image.root().unwrap(), &select);
    let mut steps = Vec::new();
    while let Some(step) = walk.next() {
        match step {
            Step::Dir(dir) => steps.push(format!("{}/", walk.path(dir).display())),
            Step::Files(dir, files) => steps.extend(files.iter().map(|file| {
                let path = walk.path(dir).join(&file.name);
                let first =
                    file.first.as_ref().map(|first| walk.path_of(first).display().to_string());
                format!(
                    "{}{}",
                    path.display(),
                    first.map_or(String::new(), |first| format!(" = {first}"))
                )
            })),
            Step::Failed(path, error) => panic!("{}: {error}", path.display()),
        }
    }
    steps
}

#[test]
fn a_directory_comes_before_its_entries() {
    let image = image(&["z/a/deep", "z/b", "a/one", "a/two"]);
    let all = ["/", "again", "a/", "a/one", "a/two", "z/", "z/b", "z/a/", "z/a/deep = again"];
    assert_eq!(walk(&image, &[], &[]), all);
    assert_eq!(walk(&image, &[], &["z/a", "one"]), ["/", "again", "a/", "a/two", "z/", "z/b"]);
    assert_eq!(walk(&image, &["deep"], &[]), ["/", "z/", "z/a/", "z/a/deep"]);
    assert_eq!(walk(&image, &["/z"], &["b"]), ["/", "z/", "z/a/", "z/a/deep"]);
    assert_eq!(walk(&image, &["none"], &[]), [""; 0]);
}

#[test]
fn long_listings_come_in_parts() {
    let names: Vec<String> = (0..3 * MAX_FILES).map(|n| format!("dir/{n:05}")).collect();
    let image = image(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let found = walk(&image, &[], &["again"]);
    assert_eq!(found[2..], names[..]);
}
