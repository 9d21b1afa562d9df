//! `bench policy NAME IMAGE DIR`: mounts an image through FUSE with one of the policies of decoding
//! that the paper compares. The command `ferofs` does not contain them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use ferofs_fuse::MountOptions;
use ferofs_read::{FileSource, Image, LowMemory, OpenOptions, Policy, Strategy};

/// All policies, by name.
pub(super) const POLICIES: [(&str, Policy); 8] = [
    ("auto", Policy::Auto),
    ("paper", Policy::Paper),
    ("commercial", Policy::Commercial),
    ("in-place", Policy::Always(Strategy::InPlace)),
    ("rolling", Policy::Always(Strategy::Rolling)),
    ("vmap", Policy::Always(Strategy::Vmap)),
    ("buffer", Policy::Always(Strategy::Buffer)),
    ("direct", Policy::Always(Strategy::Direct)),
];

#[derive(Args)]
pub(crate) struct PolicyArgs {
    name: String,
    image: PathBuf,
    dir: PathBuf,
}

/// Serves until the unmount.
pub(crate) fn policy(PolicyArgs { name, image, dir }: &PolicyArgs) -> Result<()> {
    let found = POLICIES.iter().find(|(known, _)| known == name);
    let (_, policy) = found.with_context(|| format!("no such policy: {name}"))?;
    let mut options = OpenOptions::default();
    options.engine.policy = *policy;
    options.engine.low_memory = LowMemory::Auto;
    mount(image, dir, &options)
}

fn mount(image: &Path, dir: &Path, options: &OpenOptions) -> Result<()> {
    let mount_options =
        MountOptions { source: image.display().to_string(), ..MountOptions::default() };
    let image = Image::open_with(Box::new(FileSource::open(image, 0)?), Vec::new(), options)?;
    Ok(ferofs_fuse::mount(dir, &mount_options)?.serve(image, None)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::thread;
    use std::time::Duration;

    use ferofs_tests::mount::is_mounted;
    use ferofs_tests::{Mount, compare, need, scratch_in_memory, tree};
    use ferofs_write::Compression;

    use super::*;

    /// A counter of a mount.
    fn counter(dir: &Path, name: &str) -> u64 {
        let mut text = vec![0; 64 << 10];
        let len = rustix::fs::getxattr(dir, ferofs_fuse::STATS_XATTR, &mut text[..]).unwrap();
        let text = String::from_utf8_lossy(&text[..len]).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
    }

    #[test]
    fn every_policy_gives_the_data_of_the_source() {
        if !need::fuse() {
            return;
        }
        let work_dir = scratch_in_memory();
        let path = |name: &str| work_dir.path().join(name);
        fs::create_dir(path("source")).unwrap();
        tree::create(&path("source"), &tree::Options::small()).unwrap();
        let mut build = ferofs_write::Options::new(path("source"));
        build.data.compression = Some(Compression::lz4(0).unwrap());
        ferofs_write::build(&build, path("image")).unwrap();
        for (number, (name, policy)) in POLICIES.iter().enumerate() {
            let (image, dir) = (path("image"), path(name));
            fs::create_dir(&dir).unwrap();
            let mut options = OpenOptions::default();
            options.engine.policy = *policy;
            // Without a pool, with a small one, and with the default.
            options.engine.pool = [0, 8 << 10, 256 << 10][number % 3];
            let pool = options.engine.pool;
            let daemon = thread::spawn({
                let dir = dir.clone();
                move || mount(&image, &dir, &options)
            });
            while !is_mounted(&dir) && !daemon.is_finished() {
                thread::sleep(Duration::from_millis(5));
            }
            let mounted = Mount::adopt(&dir);
            compare::compare(&path("source"), &dir, &compare::Options::default())
                .unwrap()
                .assert_same();
            let expected = match *name {
                "rolling" => "clusters_rolling",
                "buffer" | "commercial" => "clusters_buffered",
                "vmap" if pool > 0 => "clusters_vmap",
                _ => "requests",
            };
            assert!(counter(&dir, expected) > 0, "{name}: {expected}");
            mounted.unmount().unwrap();
            daemon.join().unwrap().unwrap();
        }
    }
}
