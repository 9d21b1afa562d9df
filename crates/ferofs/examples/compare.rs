//! Compares the files of two images by content: `cargo run --example compare OLD NEW`.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::path::PathBuf;

use ferofs::read::{FileSource, FileType, Image};

/// Bytes that are compared at a time.
const PIECE: usize = 1 << 20;

fn files(image: &Image) -> Result<BTreeMap<PathBuf, u64>, Box<dyn Error>> {
    let mut files = BTreeMap::new();
    for entry in image.walk() {
        let entry = entry?;
        let inode = entry.inode?;
        if inode.file_type() == FileType::Regular {
            files.insert(entry.path, inode.size());
        }
    }
    Ok(files)
}

fn is_same_file(old: &Image, new: &Image, path: &PathBuf) -> Result<bool, Box<dyn Error>> {
    let (old, new) = (old.open_file(path)?, new.open_file(path)?);
    let (mut left, mut right) = (vec![0; PIECE], vec![0; PIECE]);
    let mut offset = 0;
    loop {
        let len = old.read_at(offset, &mut left)?;
        if new.read_at(offset, &mut right)? != len || left[..len] != right[..len] {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
        offset += len as u64;
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [old, new] = paths.as_slice() else { return Err("give two images".into()) };
    let (old, new) =
        (Image::open(FileSource::open(old, 0)?)?, Image::open(FileSource::open(new, 0)?)?);
    let (old_files, mut new_files) = (files(&old)?, files(&new)?);
    for (path, old_size) in &old_files {
        match new_files.remove(path) {
            None => println!("- {}", path.display()),
            Some(new_size) if new_size != *old_size => println!("* {}", path.display()),
            Some(_) if !is_same_file(&old, &new, path)? => println!("* {}", path.display()),
            Some(_) => {}
        }
    }
    for path in new_files.keys() {
        println!("+ {}", path.display());
    }
    Ok(())
}
