//! `cargo xtask soak`: 24 processes read FUSE mounts of images with different layouts and compare
//! every byte with the source. Once a second, the test kills one of them. It fails on a wrong byte,
//! a request without an answer, or growing memory of a daemon.
//!
//! The readers are processes of this program, so that they can be killed. They evict what they have
//! read from the page cache, so that the kernel asks the daemon again.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_devtools::cgroup::Cgroup;
use ferofs_devtools::{peers, shell};
use ferofs_tests::run::proc_bytes;
use ferofs_tests::{Mount, Rng, scratch, tree};

/// Reading processes.
const READERS: u64 = 24;
/// Bytes of the largest file.
const LARGEST_FILE: usize = 10 << 20;
/// The file with the paths of all files to read.
const LIST: &str = "files";
/// Seconds between two readings of the daemons' memory.
const SAMPLE_SECONDS: u64 = 10;
/// A reader that has not compared one MiB after this time hangs: even with the lower memory limit
/// it needs much less.
const HANG: Duration = Duration::from_secs(90);

pub(crate) fn soak(options: &[&str]) -> Result<()> {
    if let ["--reader", mount, source, seed] = options {
        return compare_forever(Path::new(mount), Path::new(source), seed.parse()?);
    }
    let (mut minutes, mut memory) = (10, 512u64);
    for option in options.chunks(2) {
        match option {
            ["--minutes", n] => minutes = n.parse().context("--minutes")?,
            ["--memory", mib] => memory = mib.parse().context("--memory")?,
            _ => bail!("soak takes --minutes N and --memory MIB"),
        }
    }
    peers::install_peers()?;
    let ferofs = shell::build_ferofs("release")?;
    let work_dir = scratch::scratch();
    let source = work_dir.path().join("source");
    create_source(&source, &work_dir.path().join(LIST))?;
    let limit = MemoryLimit::new(memory << 20);
    let mut mounts = Vec::new();
    for (name, mut build) in builders(&ferofs)? {
        let image = work_dir.path().join(name);
        // mkfs.erofs expects the image first, ferofs the source.
        let is_ferofs = name.starts_with("ferofs");
        let (first, second) = if is_ferofs { (&source, &image) } else { (&image, &source) };
        shell::run(build.args([first, second]))?;
        let dir = work_dir.path().join(format!("{name}-mount"));
        fs::create_dir(&dir)?;
        mounts.push(Mount::fuse(&ferofs, &image, &dir)?);
    }
    let result = kill_readers(&mounts, &source, Duration::from_secs(60 * minutes), limit.as_ref());
    if let Some(limit) = &limit {
        limit.leave()?;
    }
    for mount in mounts {
        let dir = mount.path().to_owned();
        match mount.unmount()? {
            (Some(0), stderr) if stderr.is_empty() => {}
            (code, stderr) => bail!("{}: the daemon ended with {code:?}: {stderr}", dir.display()),
        }
    }
    result
}

/// Limits the memory of readers and daemons together, page cache included. The limit alternates
/// between `low` and four times `low`.
struct MemoryLimit {
    group: Cgroup,
    low: u64,
}

impl MemoryLimit {
    /// Seconds until the other limit is set.
    const PERIOD: u64 = 60;

    /// Starts with the low limit of `bytes`. `None` where this machine has no control groups or
    /// does not allow them.
    fn new(bytes: u64) -> Option<Self> {
        let group = Cgroup::new(None)
            .and_then(|group| group.add_process(std::process::id()).map(|()| group));
        match group {
            Ok(group) => Some(Self { group, low: bytes }),
            Err(error) => {
                eprintln!("left out: memory limits: {error:#}");
                None
            }
        }
    }

    fn set(&self, since: Duration) -> Result<()> {
        let is_high = (since.as_secs() / Self::PERIOD).is_multiple_of(2);
        self.group.set_limit(if is_high { self.low * 4 } else { self.low })
    }

    /// Moves this process out of the group: only an empty group can be removed.
    fn leave(&self) -> Result<()> {
        self.group.remove_process(std::process::id())
    }
}

/// The commands that build the images, one for each layout.
fn builders(ferofs: &Path) -> Result<Vec<(&'static str, Command)>> {
    let peers =
        peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
    let mkfs = |options: &[&str]| {
        let mut mkfs = Command::new(peers.join("mkfs.erofs"));
        mkfs.arg("--quiet").args(options);
        mkfs
    };
    let ferofs_write = |options: &[&str]| {
        let mut build = Command::new(ferofs);
        build.args(["build", "--quiet"]).args(options);
        build
    };
    Ok(vec![
        ("ferofs-lz4", ferofs_write(&["-z", "lz4"])),
        (
            "ferofs-dedupe",
            ferofs_write(&["-z", "lz4hc,9", "-C", "64K", "-E", "dedupe,ztailpacking,fragments"]),
        ),
        ("ferofs-48bit", ferofs_write(&["-z", "zstd,9", "-C", "128K", "-E", "48bit"])),
        ("ferofs-metabox", ferofs_write(&["-z", "lz4", "-m", "65536", "--compress-directories"])),
        (
            "ferofs-deflate",
            ferofs_write(&["-z", "deflate", "-C", "16K", "-E", "48bit,all-fragments"]),
        ),
        ("ferofs-plain", ferofs_write(&["-z", "none"])),
        ("fragments", mkfs(&["-zlz4hc", "-C65536", "-Eztailpacking,fragments,dedupe"])),
        ("lzma", mkfs(&["-zlzma,level=1", "-C32768", "-Eall-fragments"])),
        ("chunks", mkfs(&["--chunksize=4096"])),
    ])
}

/// Creates the source: the tests' tree with all kinds of inodes, and large files that compress well
/// and badly. Writes the list of all files that are not empty.
fn create_source(source: &Path, list: &Path) -> Result<()> {
    fs::create_dir(source)?;
    tree::create(
        source,
        &tree::Options { largest: LARGEST_FILE, deep: 0, ..tree::Options::small() },
    )?;
    let output = Command::new("find")
        .arg(source)
        .args(["-type", "f", "-size", "+0", "-printf", "%P\\0"])
        .output()?;
    Ok(fs::write(list, output.stdout)?)
}

/// Starts the readers, and kills and restarts one of them each second until `time` is over.
/// /proc/self/exe starts this program even if it has been built again meanwhile.
fn kill_readers(
    mounts: &[Mount],
    source: &Path,
    time: Duration,
    limit: Option<&MemoryLimit>,
) -> Result<()> {
    let mut rng = Rng::new(1);
    let start = |number: u64, seed: u64| -> Result<Child> {
        let mount = &mounts[usize::try_from(number)? % mounts.len()];
        let mut reader = Command::new("/proc/self/exe");
        reader.args(["soak", "--reader"]).args([mount.path(), source]).arg(seed.to_string());
        Ok(reader.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
    };
    let mut readers = (0..READERS)
        .map(|number| Ok((start(number, number)?, Instant::now())))
        .collect::<Result<Vec<(Child, Instant)>>>()?;
    let start_time = Instant::now();
    let (mut killed, mut bytes_read, mut samples) = (0u64, 0, Vec::new());
    while start_time.elapsed() < time {
        thread::sleep(Duration::from_secs(1));
        if let Some(limit) = limit {
            limit.set(start_time.elapsed())?;
        }
        for (reader, _) in &mut readers {
            if let Some(status) = reader.try_wait()? {
                bail!("a reader ended: {status}");
            }
        }
        let victim = rng.below(READERS);
        let reader = &mut readers[usize::try_from(victim)?];
        bytes_read += end(reader)?;
        killed += 1;
        *reader = (start(victim, READERS + killed)?, Instant::now());
        if killed % SAMPLE_SECONDS == 0 {
            let memory: Vec<u64> = mounts.iter().map(private_dirty).collect::<Result<_>>()?;
            println!(
                "{:>5} s: KiB private dirty of each daemon: {memory:?}",
                start_time.elapsed().as_secs()
            );
            samples.push(memory);
        }
    }
    for reader in &mut readers {
        bytes_read += end(reader)?;
    }
    println!("{READERS} readers, {killed} killed, {} compared", shell::size(bytes_read));
    // While the daemons fill their caches, in the first quarter, memory grows.
    let later = &samples[samples.len() / 4..];
    let (first_half, second_half) = later.split_at(later.len() / 2);
    for number in 0..mounts.len() {
        let largest =
            |samples: &[Vec<u64>]| samples.iter().map(|memory| memory[number]).max().unwrap_or(0);
        let (before, after) = (largest(first_half), largest(second_half));
        println!("{}: at most {before} KiB, later {after} KiB", mounts[number].path().display());
        if before > 0 && after > before + before / 4 + 1024 {
            bail!("the daemon's memory grows");
        }
    }
    Ok(())
}

/// Kills a reader and returns the number of bytes that it has compared. Fails if it hung.
fn end((reader, started): &mut (Child, Instant)) -> Result<u64> {
    reader.kill()?;
    let status = reader.wait()?;
    if status.signal() != Some(9) {
        bail!("a reader ended: {status}");
    }
    // The reader prints a dot for each MiB.
    let mut dots = Vec::new();
    reader.stdout.take().context("a reader has no output")?.read_to_end(&mut dots)?;
    if dots.is_empty() && started.elapsed() > HANG {
        bail!("a reader compared nothing in {:?}", started.elapsed());
    }
    Ok(u64::try_from(dots.len())? << 20)
}

fn private_dirty(mount: &Mount) -> Result<u64> {
    let daemon = mount.daemon_id().context("no daemon")?;
    let bytes = proc_bytes(format!("/proc/{daemon}/smaps_rollup"), "Private_Dirty:");
    Ok(bytes.context("no Private_Dirty")? >> 10)
}

/// Reads files of the mount with random sizes and offsets, and ends at the first difference from
/// the source.
fn compare_forever(mount: &Path, source: &Path, seed: u64) -> Result<()> {
    let list = fs::read(source.with_file_name(LIST))?;
    let paths: Vec<PathBuf> =
        list.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(path).collect();
    let mut rng = Rng::new(seed);
    let (mut pending, mut out) = (0, std::io::stdout());
    loop {
        let path = &paths[usize::try_from(rng.below(paths.len() as u64))?];
        let (mounted, expected) = (File::open(mount.join(path))?, File::open(source.join(path))?);
        let size = expected.metadata()?.len();
        if rng.below(3) == 0 {
            pending += compare_pages(&mounted, &expected, size, &mut rng)
                .with_context(|| mount.join(path).display().to_string())?;
            report(&mut pending, &mut out)?;
            continue;
        }
        let step = match rng.below(3) {
            0 => 4096 * (2 + rng.below(40)),
            1 => 1 + rng.below(300_000),
            _ => 0,
        };
        let len = if step > 4096 && rng.below(2) == 0 {
            4096
        } else {
            1 + usize::try_from(rng.below(200_000))?
        };
        let (mut actual, mut original) = (vec![0; len], vec![0; len]);
        let mut offset = 0;
        for _ in 0..500 {
            offset = if step == 0 { rng.below(size) } else { offset };
            let want = len.min(usize::try_from(size.saturating_sub(offset)).unwrap_or(len));
            if want == 0 {
                break;
            }
            expected.read_exact_at(&mut original[..want], offset)?;
            mounted
                .read_exact_at(&mut actual[..want], offset)
                .with_context(|| path.display().to_string())?;
            if actual[..want] != original[..want] {
                bail!("{}: {want} bytes at {offset} are wrong", mount.join(path).display());
            }
            pending += want;
            offset += step.max(1);
        }
        rustix::fs::fadvise(&mounted, 0, None, rustix::fs::Advice::DontNeed)?;
        report(&mut pending, &mut out)?;
    }
}

/// Prints a dot for each MiB that was compared.
fn report(pending: &mut usize, out: &mut impl Write) -> Result<()> {
    for _ in 0..*pending >> 20 {
        out.write_all(b".")?;
    }
    *pending &= (1 << 20) - 1;
    Ok(out.flush()?)
}

/// Compares a part of the pages of a file, at random: of all of it, or of a hot region. So the
/// daemon stores pages around some reads, and none around others. Returns the number of bytes.
fn compare_pages(mounted: &File, expected: &File, size: u64, rng: &mut Rng) -> Result<usize> {
    const PAGE: u64 = 4096;
    let pages = size.div_ceil(PAGE);
    let hot = if rng.below(2) == 0 { pages } else { (pages / 50).max(1) };
    let first = rng.below(pages - hot + 1);
    let percent = [0.1, 1.0, 5.0, 25.0, 100.0][usize::try_from(rng.below(5))?];
    let count = ((hot as f64 * percent / 100.0) as u64).clamp(1, 2000);
    let (mut actual, mut original, mut compared) = ([0; PAGE as usize], [0; PAGE as usize], 0);
    for _ in 0..count {
        let offset = (first + rng.below(hot)) * PAGE;
        let want = usize::try_from(PAGE.min(size.saturating_sub(offset)))?;
        expected.read_exact_at(&mut original[..want], offset)?;
        mounted.read_exact_at(&mut actual[..want], offset)?;
        if actual[..want] != original[..want] {
            bail!("the page at {offset} is wrong");
        }
        compared += want;
    }
    // Other pages stay in the page cache, so that later reads of this file find them.
    if rng.below(4) == 0 {
        rustix::fs::fadvise(mounted, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(compared)
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}
