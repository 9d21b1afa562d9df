//! The documents name things that exist: a page that points to a file which is gone is worse than none.

use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn every_link_leads_somewhere() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut broken = Vec::new();
    let mut links = 0;
    for page in pages(repository) {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            if target.is_empty() || target.contains("://") {
                continue;
            }
            links += 1;
            if !page.parent().unwrap().join(target).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(links >= 5, "the search for links finds {links}");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_tests_that_callers_md_names_are_there() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut code = String::new();
    let mut pending = vec![repository.join("crates"), repository.join("tests/tests")];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            if entry.is_dir() {
                pending.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                code += &fs::read_to_string(entry).unwrap();
            }
        }
    }
    let text = fs::read_to_string(repository.join("docs/CALLERS.md")).unwrap();
    let quoted = text.split('`').skip(1).step_by(2);
    let names: Vec<&str> = quoted
        .filter(|name| {
            name.matches('_').count() > 2 && !name.contains(|c: char| !c.is_alphanumeric() && c != '_')
        })
        .collect();
    assert!(names.len() > 15, "{names:?}");
    for name in names {
        assert!(code.contains(&format!("fn {name}(")), "{name} is no test");
    }
}

fn pages(repository: &Path) -> Vec<PathBuf> {
    let directories = [repository.to_owned(), repository.join("docs")];
    let files = directories.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let paths = files.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}
