//! The oracles: programs that show whether an image is right. They are the kernel, `check --deep`,
//! `diff`, the FUSE mount and erofs-utils.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use ferofs_tests::compare::{self, Field, Report, compare};
use ferofs_tests::{Mount, Rng, Run, need, run};

use super::workspace::{Finding, Stop, Workspace};

/// An image, and the options that commands need for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// Its extra devices.
    pub(crate) devices: Vec<String>,
    /// Where it starts in its file.
    pub(crate) offset: u64,
    /// Its block size, which Linux mounts up to the page size.
    pub(crate) block: u32,
    /// Made by `--loose-parents`: `..` may name another directory, which programs that check images
    /// report.
    pub(crate) loose_parents: bool,
    /// erofs-utils 1.9.4 extracts it wrongly, like images of its own: inline content of a metabox
    /// becomes zeroes, and a file that ends with a hole, of chunks or of `48bit` extents, becomes
    /// too short.
    pub(crate) erofs_utils_misreads: bool,
    /// The fields that may differ.
    pub(crate) ignore: Vec<Field>,
}

impl Image {
    /// The options that the commands of ferofs need for it.
    fn options(&self) -> Vec<OsString> {
        let mut words = Vec::new();
        if self.offset != 0 {
            words.extend(["--offset".into(), self.offset.to_string().into()]);
        }
        for device in &self.devices {
            words.extend(["--device".into(), device.into()]);
        }
        words
    }

    /// Options, then the image's name.
    pub(crate) fn words(&self, command: &[&str], name: &str) -> Vec<OsString> {
        command.iter().map(OsString::from).chain(self.options()).chain([name.into()]).collect()
    }

    fn comparison(&self) -> compare::Options {
        compare::Options { ignore: self.ignore.clone(), threads: 1, limit: 20 }
    }
}

/// The oracles that this machine has, besides those that are always present.
#[derive(Debug)]
pub(crate) struct Oracles {
    page: u32,
    kernel: bool,
    fuse: bool,
    fsck: Option<PathBuf>,
}

impl Oracles {
    /// `kernel`: whether the kernel mounts all that is made. If not, FUSE shows each image instead.
    pub(crate) fn find(kernel: bool) -> Self {
        if !kernel {
            println!(
                "the kernel of this machine (Linux 6.17 with EROFS is needed) does not judge: each image is mounted through FUSE"
            );
        }
        let peer = std::env::var_os("FEROFS_PEERS").map(|dir| Path::new(&dir).join("fsck.erofs"));
        let fsck = peer.filter(|file| file.is_file());
        if fsck.is_none() {
            need::lacks(need::PEERS);
        }
        Self { page: rustix::param::page_size() as u32, kernel, fuse: need::fuse(), fsck }
    }

    /// Compares the image `name` with the directory `want`, by several oracles. Expensive oracles
    /// compare only some images, unless `all` is true.
    pub(crate) fn compare_image(
        &self,
        workspace: &mut Workspace,
        image: &Image,
        name: &str,
        all: bool,
        rng: &mut Rng,
    ) -> Result<(), Stop> {
        let (diff, fuse, fsck, direct) =
            (rng.chance(30), rng.chance(4), rng.chance(12), rng.chance(4));
        let mut words = image.words(&["check", "--deep"], name);
        if rng.chance(50) {
            words.extend(["--workers".into(), "1".into()]);
        }
        if rng.chance(10) {
            words.push("--json".into());
        }
        let checked = workspace.ferofs(&words, None)?;
        if checked.code != 0 && !image.loose_parents {
            let said = format!("{}{}", checked.stderr, String::from_utf8_lossy(&checked.stdout));
            let first: Vec<&str> = said.lines().take(3).collect();
            return Err(Finding::new("check", first.join(" | ")).into());
        }
        let mountable = image.block <= self.page;
        if mountable && self.kernel {
            self.kernel(
                workspace,
                image,
                name,
                (direct || all) && image.devices.is_empty() && image.offset == 0,
            )?;
        }
        let own_reader = image.devices.is_empty() && image.offset == 0;
        if own_reader && (diff || all || !mountable) {
            let mut words: Vec<OsString> = ["diff", "-q", "want", name].map(OsString::from).into();
            if !image.ignore.is_empty() {
                words.extend(["--ignore".into(), "times".into()]);
            }
            let outcome = workspace.ferofs(&words, None)?;
            if outcome.code != 0 {
                let said =
                    format!("{}{}", outcome.stderr, String::from_utf8_lossy(&outcome.stdout));
                return Err(
                    Finding::new("library", said.lines().next().unwrap_or("differs")).into()
                );
            }
        }
        if self.fuse && (fuse || all || !self.kernel) {
            self.fuse(workspace, image, name)?;
        }
        if let Some(tool) =
            self.fsck.as_ref().filter(|_| (fsck || all) && mountable && !image.loose_parents)
        {
            fsck_erofs(
                tool,
                workspace,
                image,
                name,
                (all || rng.chance(35)) && !image.erofs_utils_misreads && image.devices.is_empty(),
            )?;
        }
        Ok(())
    }

    /// Through a loop device, and from the file itself if `direct`.
    fn kernel(
        &self,
        workspace: &mut Workspace,
        image: &Image,
        name: &str,
        direct: bool,
    ) -> Result<(), Stop> {
        let (file, dir) = (workspace.path(name), workspace.path("mnt"));
        let mut options = "ro,loop".to_owned();
        if image.offset != 0 {
            options.push_str(&format!(",offset={}", image.offset));
        }
        let mut loops = Vec::new();
        for device in &image.devices {
            let made = Loop::new(workspace, device)?;
            options.push_str(&format!(",device={}", made.0));
            loops.push(made);
        }
        wait_for_loop(&file)?;
        workspace.log.push(format!("mount -t erofs -o {options} {name} mnt"));
        let mount = Mount::kernel_with(&file, &dir, &options);
        let mount =
            mount.map_err(|error| Finding::new("kernel", format!("does not mount: {error}")))?;
        let report = compare(&workspace.path("want"), mount.path(), &image.comparison());
        mount.unmount()?;
        report_differences("kernel", report)?;
        if direct {
            // Linux does not mount files on tmpfs directly, but files on a disk.
            let copy = tempfile::NamedTempFile::new_in(ferofs_tests::scratch::target_dir())?;
            std::fs::copy(&file, copy.path())?;
            let mount = match Mount::kernel_file(copy.path(), &dir) {
                // Before Linux 6.12, or on another file system in memory.
                Err(error)
                    if error.raw_os_error() == Some(rustix::io::Errno::NOTBLK.raw_os_error()) =>
                {
                    return Ok(());
                }
                mount => mount.map_err(|error| {
                    Finding::new("kernel", format!("does not mount the file: {error}"))
                })?,
            };
            let report = compare(&workspace.path("want"), mount.path(), &image.comparison());
            mount.unmount()?;
            report_differences("kernel, from a file", report)?;
        }
        Ok(())
    }

    fn fuse(&self, workspace: &mut Workspace, image: &Image, name: &str) -> Result<(), Stop> {
        let options = image.options();
        let options: Vec<_> = options.iter().map(OsString::as_os_str).collect();
        let (file, dir) = (workspace.path(name), workspace.path("mnt"));
        // Devices are given with whole paths: the daemon is not started in the workspace's
        // directory.
        let whole: Vec<OsString> = options
            .iter()
            .map(|word| {
                if image.devices.iter().any(|device| *word == device.as_str()) {
                    workspace.path(&word.to_string_lossy()).into()
                } else {
                    (*word).to_owned()
                }
            })
            .collect();
        let whole: Vec<_> = whole.iter().map(OsString::as_os_str).collect();
        fuse_shows(workspace, &file, &dir, &whole, image)
    }
}

/// A loop device. Dropping the value detaches it.
struct Loop(String);

impl Loop {
    fn new(workspace: &mut Workspace, file: &str) -> Result<Self, Stop> {
        let outcome =
            workspace.tool("losetup", &["--find", "--show", "--read-only", file], None)?;
        Ok(Self(String::from_utf8_lossy(&outcome.stdout).trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // If this fails, the system detaches it later.
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Waits until no loop device uses `file`. Linux detaches the device of the previous mount with a
/// delay, and mount(8) would reuse it with its cache of the old content.
fn wait_for_loop(file: &Path) -> io::Result<()> {
    let file = file.canonicalize()?;
    let has_file = |entry: io::Result<std::fs::DirEntry>| {
        let behind =
            entry.and_then(|entry| std::fs::read_to_string(entry.path().join("loop/backing_file")));
        behind.is_ok_and(|behind| Path::new(behind.trim_end()) == file)
    };
    for _ in 0..200 {
        if !std::fs::read_dir("/sys/block")?.any(has_file) {
            return Ok(());
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(io::Error::other(format!("{}: a loop device stays", file.display())))
}

/// Mounts through FUSE and compares.
fn fuse_shows(
    workspace: &mut Workspace,
    file: &Path,
    dir: &Path,
    options: &[&std::ffi::OsStr],
    image: &Image,
) -> Result<(), Stop> {
    workspace.log.push("ferofs mount --fuse image mnt".into());
    let mount = Mount::fuse_with(run::ferofs_path(), options, file, dir)
        .map_err(|error| Finding::new("fuse", format!("does not mount: {error}")))?;
    let report = compare(&workspace.path("want"), mount.path(), &image.comparison());
    let (code, said) = mount.unmount()?;
    report_differences("fuse", report)?;
    if code != Some(0) {
        return Err(Finding::new("fuse", format!("the daemon ends with {code:?}: {said}")).into());
    }
    Ok(())
}

/// The image `file` with a patch over it in memory, through FUSE.
pub(crate) fn overlay(
    workspace: &mut Workspace,
    name: &str,
    patch: &str,
    image: &Image,
) -> Result<(), Stop> {
    let (file, dir, patch) = (workspace.path(name), workspace.path("mnt"), workspace.path(patch));
    let options = ["--patch".as_ref(), patch.as_os_str()];
    fuse_shows(workspace, &file, &dir, &options, image)
}

/// Compares two directories of the workspace.
pub(crate) fn directories(
    oracle: &'static str,
    workspace: &Workspace,
    want: &str,
    got: &str,
    image: &Image,
) -> Result<(), Stop> {
    report_differences(
        oracle,
        compare(&workspace.path(want), &workspace.path(got), &image.comparison()),
    )
}

fn report_differences(oracle: &'static str, report: io::Result<Report>) -> Result<(), Stop> {
    let report =
        report.map_err(|error| Finding::new(oracle, format!("cannot be listed: {error}")))?;
    let Some(first) = report.differences.first() else { return Ok(()) };
    let field = format!("{:?}", first.field);
    let field = field.split('(').next().unwrap_or_default();
    Err(Finding::new(oracle, format!("{field} differs ({} in all): {first}", report.count)).into())
}

fn fsck_erofs(
    tool: &Path,
    workspace: &mut Workspace,
    image: &Image,
    name: &str,
    extract: bool,
) -> Result<(), Stop> {
    let mut run =
        Run::limited(tool, None, std::time::Duration::from_secs(60)).dir(workspace.work());
    let mut line = "fsck.erofs".to_owned();
    let mut words = Vec::new();
    if image.offset != 0 {
        words.push(format!("--offset={}", image.offset));
    }
    words.extend(image.devices.iter().map(|device| format!("--device={device}")));
    if extract {
        workspace.directory("theirs")?;
        words.extend(["--extract=theirs".into(), "--overwrite".into(), "--preserve".into()]);
    }
    words.push(name.into());
    for word in &words {
        line = format!("{line} {word}");
    }
    run = run.args(&words);
    workspace.log.push(line);
    let outcome = run.try_run()?;
    if outcome.code != 0 {
        let said: Vec<&str> = outcome.stderr.lines().take(3).collect();
        return Err(Finding::new(
            "erofs-utils",
            format!("exit {}: {}", outcome.code, said.join(" | ")),
        )
        .into());
    }
    if extract {
        // It restores neither hard links nor all attributes; times of directories change while it
        // writes.
        let ignore = vec![
            Field::Xattr(String::new()),
            Field::HardLink,
            Field::Links,
            Field::Mtime,
            Field::Mode,
            Field::Uid,
            Field::Gid,
            Field::Missing,
            Field::Listing,
        ];
        let options = compare::Options { ignore, threads: 1, limit: 20 };
        report_differences(
            "erofs-utils",
            compare(&workspace.path("want"), &workspace.path("theirs"), &options),
        )?;
    }
    Ok(())
}
