//! `cargo xtask soak`: 24 readers on FUSE mounts of images of mixed layouts, comparing every byte with the source, some of
//! them killed in the midst. No wrong byte, no stuck request, and memory stays flat.
//!
//! Readers are this program once more, so that they can be killed. They drop what they read from the page cache, so
//! that the daemon keeps being asked.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_tests::rng::Rng;
use ferofs_tests::{Mount, scratch, tree};

use crate::group::Group;
use crate::{peers, shell};

const READERS: u64 = 24;
const LARGE: usize = 10 << 20;
const LIST: &str = "files";
/// How often memory is looked at, in seconds.
const PEEK: u64 = 10;
/// A reader that compares no MiB in this time, under the tightest limit on memory, waits for something that does not come.
const STUCK: Duration = Duration::from_secs(90);

pub(crate) fn soak(options: &[&str]) -> Result<()> {
    if let ["--reader", mount, source, seed] = options {
        return read_for_ever(Path::new(mount), Path::new(source), seed.parse()?);
    }
    let (mut minutes, mut memory) = (10, 512u64);
    for option in options.chunks(2) {
        match option {
            ["--minutes", n] => minutes = n.parse().context("--minutes")?,
            ["--memory", mib] => memory = mib.parse().context("--memory")?,
            _ => bail!("soak takes --minutes N and --memory MIB"),
        }
    }
    peers::peers()?;
    let ferofs = shell::build_ferofs("release")?;
    let room = scratch::scratch();
    let source = room.path().join("source");
    plant(&source, &room.path().join(LIST))?;
    let pressure = Pressure::new(memory << 20);
    let mut mounts = Vec::new();
    for (name, mut build) in builders(&ferofs)? {
        let image = room.path().join(name);
        // mkfs.erofs has the image first, ferofs the source.
        let ours = name.starts_with("ferofs");
        let (first, second) = if ours { (&source, &image) } else { (&image, &source) };
        shell::run(build.args([first, second]))?;
        let dir = room.path().join(format!("{name}-mount"));
        fs::create_dir(&dir)?;
        mounts.push(Mount::fuse(&ferofs, &image, &dir)?);
    }
    let watch = watch(&mounts, &source, Duration::from_secs(60 * minutes), pressure.as_ref());
    if let Some(pressure) = &pressure {
        pressure.leave()?;
    }
    for mount in mounts {
        let dir = mount.path().to_owned();
        match mount.unmount()? {
            (Some(0), said) if said.is_empty() => {}
            (code, said) => bail!("{}: the daemon ended with {code:?}: {said}", dir.display()),
        }
    }
    watch
}

/// Limits the memory of readers and daemons together, page cache included: tight, then wide, in turns.
struct Pressure {
    group: Group,
    tight: u64,
}

impl Pressure {
    /// How long each limit holds.
    const TURN: u64 = 60;

    /// `None` where control groups are missing or not allowed.
    fn new(tight: u64) -> Option<Self> {
        let group = Group::new(None).and_then(|group| group.adopt(std::process::id()).map(|()| group));
        match group {
            Ok(group) => Some(Self { group, tight }),
            Err(error) => {
                eprintln!("left out: limits on memory: {error:#}");
                None
            }
        }
    }

    fn set(&self, since: Duration) -> Result<()> {
        let wide = (since.as_secs() / Self::TURN).is_multiple_of(2);
        self.group.limit(if wide { self.tight * 4 } else { self.tight })
    }

    /// Leaves the group, which can be removed when nothing is in it.
    fn leave(&self) -> Result<()> {
        self.group.release(std::process::id())
    }
}

/// The layouts: one image each.
fn builders(ferofs: &Path) -> Result<Vec<(&'static str, Command)>> {
    let peers = peers::installed(&scratch::target_dir()).context("cargo xtask peers has not finished")?;
    let mkfs = |options: &[&str]| {
        let mut mkfs = Command::new(peers.join("mkfs.erofs"));
        mkfs.arg("--quiet").args(options);
        mkfs
    };
    let own = |options: &[&str]| {
        let mut build = Command::new(ferofs);
        build.args(["build", "--quiet"]).args(options);
        build
    };
    Ok(vec![
        ("ferofs-lz4", own(&["-z", "lz4"])),
        ("ferofs-dedupe", own(&["-z", "lz4hc,9", "-C", "64K", "-E", "dedupe,ztailpacking,fragments"])),
        ("ferofs-48bit", own(&["-z", "zstd,9", "-C", "128K", "-E", "48bit"])),
        ("ferofs-metabox", own(&["-z", "lz4", "-m", "65536", "--compress-directories"])),
        ("ferofs-deflate", own(&["-z", "deflate", "-C", "16K", "-E", "48bit,all-fragments"])),
        ("ferofs-plain", own(&[])),
        ("fragments", mkfs(&["-zlz4hc", "-C65536", "-Eztailpacking,fragments,dedupe"])),
        ("lzma", mkfs(&["-zlzma,level=1", "-C32768", "-Eall-fragments"])),
        ("chunks", mkfs(&["--chunksize=4096"])),
    ])
}

/// Every oddity of the tests' tree, large files that compress well and not at all, and a list of all that have content.
fn plant(source: &Path, list: &Path) -> Result<()> {
    fs::create_dir(source)?;
    tree::plant(source, &tree::Options { largest: LARGE, deep: 0, ..tree::Options::small() })?;
    let output =
        Command::new("find").arg(source).args(["-type", "f", "-size", "+0", "-printf", "%P\\0"]).output()?;
    Ok(fs::write(list, output.stdout)?)
}

/// Keeps readers, which are this very program even when it has been built anew, going until the time is over, and kills one of them each second.
fn watch(mounts: &[Mount], source: &Path, time: Duration, pressure: Option<&Pressure>) -> Result<()> {
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
    let begun = Instant::now();
    let (mut killed, mut read, mut peaks) = (0u64, 0, Vec::new());
    while begun.elapsed() < time {
        thread::sleep(Duration::from_secs(1));
        if let Some(pressure) = pressure {
            pressure.set(begun.elapsed())?;
        }
        for (reader, _) in &mut readers {
            if let Some(status) = reader.try_wait()? {
                bail!("a reader ended: {status}");
            }
        }
        let victim = rng.below(READERS);
        let place = &mut readers[usize::try_from(victim)?];
        read += end(place)?;
        killed += 1;
        *place = (start(victim, READERS + killed)?, Instant::now());
        if killed % PEEK == 0 {
            let memory: Vec<u64> = mounts.iter().map(private_dirty).collect::<Result<_>>()?;
            println!("{:>5} s: KiB private dirty of each daemon: {memory:?}", begun.elapsed().as_secs());
            peaks.push(memory);
        }
    }
    for reader in &mut readers {
        read += end(reader)?;
    }
    println!("{READERS} readers, {killed} killed, {:.1} GiB compared", read as f64 / f64::from(1 << 30));
    // The first quarter fills caches.
    let later = &peaks[peaks.len() / 4..];
    let (head, tail) = later.split_at(later.len() / 2);
    for number in 0..mounts.len() {
        let most = |samples: &[Vec<u64>]| samples.iter().map(|memory| memory[number]).max().unwrap_or(0);
        let (before, after) = (most(head), most(tail));
        println!("{}: at most {before} KiB, later {after} KiB", mounts[number].path().display());
        if before > 0 && after > before + before / 4 + 1024 {
            bail!("memory grows");
        }
    }
    Ok(())
}

/// Kills a reader; says how many bytes it had compared, which are some if it had time for them.
fn end((reader, started): &mut (Child, Instant)) -> Result<u64> {
    reader.kill()?;
    let status = reader.wait()?;
    if status.signal() != Some(9) {
        bail!("a reader ended: {status}");
    }
    // A dot for each MiB.
    let mut dots = Vec::new();
    reader.stdout.take().context("a reader has no output")?.read_to_end(&mut dots)?;
    if dots.is_empty() && started.elapsed() > STUCK {
        bail!("a reader compared nothing in {:?}", started.elapsed());
    }
    Ok(u64::try_from(dots.len())? << 20)
}

fn private_dirty(mount: &Mount) -> Result<u64> {
    let daemon = mount.daemon_id().context("no daemon")?;
    let map = fs::read_to_string(format!("/proc/{daemon}/smaps_rollup"))?;
    let line =
        map.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).context("no Private_Dirty")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Reads files of the mount in all ways, and ends at the first difference.
fn read_for_ever(mount: &Path, source: &Path, seed: u64) -> Result<()> {
    let list = fs::read(source.with_file_name(LIST))?;
    let paths: Vec<PathBuf> =
        list.split(|byte| *byte == 0).filter(|path| !path.is_empty()).map(path).collect();
    let mut rng = Rng::new(seed);
    let (mut pending, mut out) = (0, std::io::stdout());
    loop {
        let path = &paths[usize::try_from(rng.below(paths.len() as u64))?];
        let (shown, expected) = (File::open(mount.join(path))?, File::open(source.join(path))?);
        let size = expected.metadata()?.len();
        let step = match rng.below(3) {
            0 => 4096 * (2 + rng.below(40)),
            1 => 1 + rng.below(300_000),
            _ => 0,
        };
        let len =
            if step > 4096 && rng.below(2) == 0 { 4096 } else { 1 + usize::try_from(rng.below(200_000))? };
        let (mut ours, mut theirs) = (vec![0; len], vec![0; len]);
        let mut at = 0;
        for _ in 0..500 {
            at = if step == 0 { rng.below(size) } else { at };
            let want = len.min(usize::try_from(size.saturating_sub(at)).unwrap_or(len));
            if want == 0 {
                break;
            }
            expected.read_exact_at(&mut theirs[..want], at)?;
            shown.read_exact_at(&mut ours[..want], at).with_context(|| path.display().to_string())?;
            if ours[..want] != theirs[..want] {
                bail!("{}: {want} bytes from {at} are wrong", mount.join(path).display());
            }
            pending += want;
            at += step.max(1);
        }
        rustix::fs::fadvise(&shown, 0, None, rustix::fs::Advice::DontNeed)?;
        for _ in 0..pending >> 20 {
            out.write_all(b".")?;
        }
        out.flush()?;
        pending &= (1 << 20) - 1;
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    std::ffi::OsStr::from_bytes(bytes).into()
}
