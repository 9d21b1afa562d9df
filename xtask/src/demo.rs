//! `cargo xtask demo [DIR]`: builds an image of a real directory, checks and mounts it, compares
//! each file, and prints the result.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install::{self, FUSE, MODPROBE, MOUNT};
use ferofs_devtools::shell;
use ferofs_tests::mount::is_mounted;
use ferofs_tests::{Mount, Report, compare, need, scratch};

pub(crate) fn demo(dir: &Path) -> Result<()> {
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    install::install(&[FUSE, MOUNT])?;
    let ferofs = shell::build_ferofs("release")?;
    let work_dir = WorkDir::new(scratch::target_dir().join("demo"))?;
    let image = work_dir.path.join("image.erofs");

    let start = Instant::now();
    shell::run(Command::new(&ferofs).args(["build", "--compress", "lz4"]).args([&dir, &image]))?;
    let built = start.elapsed();
    let start = Instant::now();
    shell::run(Command::new(&ferofs).arg("check").arg(&image))?;
    let checked = start.elapsed();

    let mount = Mount::fuse(&ferofs, &image, &work_dir.directory("fuse")?)
        .context("ferofs mount --fuse")?;
    let fuse = Compared::with(&dir, &mount)?;
    mount.unmount()?;
    let kernel = if can_mount_with_kernel()? {
        let mount =
            Mount::kernel(&image, &work_dir.directory("kernel")?).context("mount -t erofs")?;
        let kernel = Compared::with(&dir, &mount)?;
        mount.unmount()?;
        Ok(kernel)
    } else if need::is_root() {
        Err("left out: this kernel has no EROFS")
    } else {
        Err("left out: needs root")
    };

    let size = fs::metadata(&image)?.len();
    let Report { entries, bytes, .. } = fuse.report;
    println!(
        "\n{}  {entries} names, {} of data",
        shell::bold(&dir.display().to_string()),
        shell::size(bytes)
    );
    let percent = size as f64 / bytes.max(1) as f64 * 100.0;
    println!("image     of {}, {percent:.0} % of the data", shell::size(size));
    println!("built     in {}, {}", seconds(built), shell::rate(bytes, built));
    println!("checked   in {}", seconds(checked));
    println!("FUSE      {fuse}");
    match &kernel {
        Ok(kernel) => println!("kernel    {kernel}"),
        Err(reason) => println!("kernel    {reason}"),
    }
    let differences = fuse.report.count + kernel.as_ref().map_or(0, |kernel| kernel.report.count);
    if differences > 0 {
        for difference in fuse
            .report
            .differences
            .iter()
            .chain(kernel.iter().flat_map(|k| &k.report.differences))
            .take(50)
        {
            println!("  {difference}");
        }
        bail!("the image is not the source: {differences} differences");
    }
    Ok(())
}

/// Whether the kernel can mount EROFS and this process is allowed to.
fn can_mount_with_kernel() -> Result<bool> {
    if !need::is_root() {
        return Ok(false);
    }
    if !need::kernel_has_erofs() {
        install::install(&[MODPROBE])?;
    }
    Ok(need::kernel_has_erofs())
}

/// The result of comparing a mount with the source.
struct Compared {
    report: Report,
    time: Duration,
}

impl Compared {
    fn with(dir: &Path, mount: &Mount) -> Result<Self> {
        let options =
            if need::is_root() { Default::default() } else { compare::Options::unprivileged() };
        let start = Instant::now();
        let report = compare(dir, mount.path(), &options)?;
        Ok(Self { report, time: start.elapsed() })
    }
}

impl std::fmt::Display for Compared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Report { count, entries, bytes, .. } = self.report;
        let verdict = match count {
            0 => shell::colour("no difference", "32"),
            _ => shell::colour(&format!("{count} differences"), "31"),
        };
        write!(
            f,
            "mounted, {entries} names and {} compared in {}: {verdict}",
            shell::size(bytes),
            seconds(self.time)
        )
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// The directory of the demo's files. Dropping the value removes it; a new one first removes what
/// an interrupted demo left.
struct WorkDir {
    path: PathBuf,
}

impl WorkDir {
    fn new(path: PathBuf) -> Result<Self> {
        remove(&path)?;
        fs::create_dir_all(&path)?;
        Ok(Self { path })
    }

    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        fs::create_dir(&path)?;
        Ok(path)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.path) {
            eprintln!("cleaning up {}: {error:#}", self.path.display());
        }
    }
}

fn remove(path: &Path) -> Result<()> {
    for name in ["fuse", "kernel"] {
        let dir = path.join(name);
        if dir.symlink_metadata().is_ok() && is_mounted(&dir) {
            Mount::adopt(&dir).unmount()?;
        }
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}
