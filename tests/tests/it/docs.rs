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

fn pages(repository: &Path) -> Vec<PathBuf> {
    let directories = [repository.to_owned(), repository.join("docs")];
    let files = directories.iter().filter_map(|dir| fs::read_dir(dir).ok()).flatten();
    let paths = files.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}
