//! `pull`: what is continued, what is fetched again, and what the complete file replaces.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

mod common;

use std::fs::{Permissions, read, read_dir, set_permissions, write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use common::{Sealed, web};
use ferofs_serve::Error;
use ferofs_serve::pull::{PullOptions, Pulled, pull};
use ferofs_test_server::{Fault, Rule, Server};

const MIB: u64 = 1 << 20;

fn pull_to(path: &Path, server: &Server, options: &PullOptions) -> Result<Pulled, Error> {
    pull(&web(&server.url("/image"))().unwrap(), path, options, &|_| ())
}

/// The hidden folder with what has arrived.
fn partial(folder: &Path) -> Option<PathBuf> {
    let names = read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    names.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "partial"))
}

fn mode_of(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn wrong_bytes_of_an_earlier_pull_are_fetched_again() {
    let (sealed, server) = (Sealed::new(20 * MIB, 1), Server::start().unwrap());
    server.put("/image", sealed.bytes.to_vec());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut options = PullOptions::default();
    options.root = Some(sealed.root);
    options.hash_offset = Some(sealed.position);
    // An error on the disk, and a file that has nothing of the image.
    for wrong in [1, 16 * MIB] {
        server.add(Rule::new(Fault::Status(403)).covering(18_000_000));
        pull_to(&path, &server, &options).unwrap_err();
        server.clear();
        let entry = read_dir(partial(folder.path()).unwrap()).unwrap().next().unwrap().unwrap();
        let file = std::fs::File::options().write(true).open(entry.path().join("data")).unwrap();
        file.write_all_at(&vec![0; usize::try_from(wrong).unwrap()], 0).unwrap();
        server.reset();
        let pulled = pull_to(&path, &server, &options).unwrap();
        assert!(pulled.is_verified && pulled.resumed + wrong <= sealed.size());
        assert!(server.counts().bytes < wrong + 5 * MIB, "only they are fetched again");
        assert!(read(&path).unwrap() == *sealed.bytes);
        assert_eq!(partial(folder.path()), None);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_access_of_the_replaced_file_stays() {
    let server = Server::start().unwrap();
    server.put("/image", vec![1; 100_000]);
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (folder.path().join("image"), folder.path().join("other"));
    write(&other, "").unwrap();
    pull_to(&path, &server, &PullOptions::default()).unwrap();
    assert_eq!(mode_of(&path), mode_of(&other), "as any new file");
    for mode in [0o600, 0o640, 0o664] {
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        pull_to(&path, &server, &PullOptions::default()).unwrap();
        assert_eq!(mode_of(&path), mode);
    }
}

#[test]
fn only_an_image_replaces_an_image() {
    let server = Server::start().unwrap();
    server.put("/image", vec![1; 100_000]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let mut image = vec![0; 4096];
    image[1024..1028].copy_from_slice(&0xE0F5_E1E2_u32.to_le_bytes());
    write(&path, &image).unwrap();
    let mut options = PullOptions::default();
    let error = pull_to(&path, &server, &options).unwrap_err();
    assert!(matches!(error, Error::Image { .. }), "{error}");
    assert_eq!((read(&path).unwrap(), partial(folder.path())), (image.clone(), None));
    options.replace_image = true;
    assert!(!pull_to(&path, &server, &options).unwrap().is_image);
    assert_eq!(read(&path).unwrap(), [1; 100_000]);
    server.put("/image", image.clone());
    assert!(pull_to(&path, &server, &PullOptions::default()).unwrap().is_image);
    assert_eq!(read(&path).unwrap(), image);
}
