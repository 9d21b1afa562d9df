//! mount.erofs of erofs-utils, which can mount an image of a registry, and ferofs, at 20 ms.
//!
//! Debian does not package mount.erofs, so it is compiled from Debian's source package. Of its ways to mount a remote image:
//!
//! - `erofs.fuse` starts erofsfuse, which takes files only.
//! - `erofs.nbd` and `erofs.ublk` need kernels with NBD or ublk.
//! - `erofs.fanotify` needs Linux 6.14, and 7.1 for metadata: older kernels read metadata from the holes of its file. The
//!   benchmark writes the metadata into the file before the mount, so that only data is fetched, and this can be compared. It gives
//!   mount.erofs an advantage, and ferofs none.

use std::fs::{self, File};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_devtools::install;
use ferofs_devtools::peers;
use ferofs_tests::tools::Tool;

use super::images::{Image, LARGE_FILE};
use super::remote::CacheDir;
use super::servers::Server;
use super::{Bench, FAR, Way};
use crate::common::report::{Table, Wanted, number, spread};
use crate::common::rounds::{rotated_order, run_quietly};

/// Where mount.erofs keeps what it fetches.
const ITS_CACHE: &str = "/var/cache/erofsmount";
/// The version whose source is compiled.
const VERSION: &str = "1.9.4";
/// Small files that are read, and bytes of the large one.
const FILES: usize = 30;
const LARGE_BYTES: u64 = 16 << 20;
/// A mount.erofs that has not ended after this time hangs.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The metadata of an image that ferofs has built is within this part from its end, with the hash tree.
const TAIL: u64 = 64 << 20;

/// Compiles mount.erofs in `dir` unless that was done before. Returns the program.
fn mount_erofs(dir: &Path) -> Result<PathBuf> {
    let source = dir.join("erofs-utils");
    let program = source.join("mount/mount.erofs");
    if program.exists() {
        return Ok(program);
    }
    install::install(&[
        Tool { program: "autoreconf", package: "autoconf" },
        Tool { program: "automake", package: "automake" },
        Tool { program: "libtoolize", package: "libtool" },
        Tool { program: "pkg-config", package: "pkgconf" },
        Tool { program: "make", package: "make" },
        Tool { program: "cc", package: "gcc" },
    ])?;
    for library in ["libcurl4-openssl-dev", "libfuse3-dev", "libjson-c-dev", "liblz4-dev", "uuid-dev"] {
        install::install_package(library)?;
    }
    fs::create_dir_all(&source)?;
    let archive = dir.join("erofs-utils.tar.gz");
    let address =
        format!("{}/pool/main/e/erofs-utils/erofs-utils_{VERSION}.orig.tar.gz", peers::debian_mirror()?);
    run_quietly(Command::new("curl").args(["-fsSL", "-o"]).arg(&archive).arg(address))?;
    run_quietly(Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(&source).args(["--strip", "1"]))?;
    let steps = "./autogen.sh && ./configure --enable-fuse --enable-oci --enable-fanotify --disable-werror && make -j4";
    run_quietly(Command::new("sh").args(["-c", steps]).current_dir(&source).stdin(Stdio::null()))?;
    Ok(program)
}

pub(super) fn reference(bench: &mut Bench) -> Result<()> {
    let program = match mount_erofs(&bench.dir) {
        Ok(program) => program,
        Err(error) => {
            println!("left out: mount.erofs cannot be compiled: {error:#}");
            return Ok(());
        }
    };
    let image = bench.container.clone();
    let registry = Server::registry(&bench.server_dir("registry"))?;
    run_quietly(
        bench.ferofs.command("push").arg(&image.path).arg(format!("oci://{}/fleet:1", registry.address)),
    )?;
    let way = Way::counted(registry.address, &FAR)?;
    let mut rows = Vec::new();
    let mut note = String::new();
    let cached = ItsFile::new(&image)?;
    for kind in ["erofs.fuse", "erofs.nbd", "erofs.ublk", "erofs.fanotify"] {
        cached.remove()?;
        let (works, message) = try_mount(&program, kind, way.address, &bench.mount_point())?;
        note.push_str(&format!(" `-t {kind}`: {}.", if works { "mounted".into() } else { message }));
    }
    let mut figures: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 0..bench.options.rounds {
        for number in rotated_order(2, round) {
            let [small, large] = if number == 0 {
                own(bench, way.address)?
            } else {
                cached.write(&image)?;
                match reads_of(&program, way.address, bench)? {
                    Ok(figures) => figures,
                    Err(message) => {
                        println!("left out: mount.erofs -t erofs.fanotify: {message};{note}");
                        return Ok(());
                    }
                }
            };
            figures[number][0].push(small);
            figures[number][1].push(large);
        }
    }
    let [own, other] = &figures;
    let what = [format!("{FILES} small files, s"), format!("{} MiB in sequence, s", LARGE_BYTES >> 20)];
    for (number_of, what) in what.iter().enumerate() {
        let ratio = spread(own[number_of].iter().zip(&other[number_of]).map(|(own, other)| other / own))?;
        bench.report.aim(
            format!("mount.erofs / ferofs, 20 ms, {what}"),
            ratio.0,
            Wanted::AtLeast(10.0),
            " times",
        );
        rows.push(vec![
            what.clone(),
            spread(own[number_of].iter().copied())?.1,
            spread(other[number_of].iter().copied())?.1,
            number(ratio.0),
        ]);
    }
    bench.report.add(&Table {
        title: "mount.erofs".into(),
        text: format!(
            "Cold reads through a mount of an image in a registry at 20 ms, by ferofs, and by mount.erofs {VERSION} with `-t erofs.fanotify`. Kernels before 7.1 \
             let it fetch data only, so the benchmark gives it all metadata beforehand; ferofs fetches its metadata. Scattered small files take at least \
             one round trip each. Without this help:{note}"
        ),
        head: vec!["read", "ferofs", "mount.erofs", "times"],
        rows,
    });
    Ok(())
}

fn command(program: &Path, kind: &str, registry: SocketAddr, dir: &Path) -> Command {
    let mut command = Command::new("timeout");
    // It starts erofsfuse by its name.
    let fuse = program.parent().and_then(Path::parent).unwrap_or(Path::new("/")).join("fuse");
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{path}", fuse.display()));
    command.arg(TIMEOUT.as_secs().to_string()).arg(program).args(["-t", kind]);
    command.args(["-o", "oci.insecure,oci.layer=0"]).arg(format!("{registry}/fleet:1")).arg(dir);
    command
}

/// Mounts without help. Returns whether it works: whether the directory has files; and its messages.
fn try_mount(program: &Path, kind: &str, registry: SocketAddr, dir: &Path) -> Result<(bool, String)> {
    let log = tempfile::tempfile()?;
    // A daemon that stays would keep a pipe open.
    let mut mount = command(program, kind, registry, dir);
    mount.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let status = mount.status().context("timeout")?;
    let works = status.success() && fs::read_dir(dir)?.next().is_some();
    if status.success() {
        unmount(program, dir)?;
    }
    let mut bytes = vec![0; usize::try_from(log.metadata()?.len())?];
    log.read_exact_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes).replace(&registry.to_string(), "HOST");
    // Warnings say that this is experimental.
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("<W>"));
    Ok((works, format!("“{}”", lines.collect::<Vec<_>>().join("; "))))
}

/// Unmounts, and ends the process that fetches, which would stay after umount(8).
fn unmount(program: &Path, dir: &Path) -> Result<()> {
    run_quietly(Command::new(program).arg("-u").arg(dir))
}

/// The file in which mount.erofs keeps the image. Files of other images stay.
struct ItsFile {
    file: PathBuf,
}

impl ItsFile {
    fn new(image: &Image) -> Result<Self> {
        let output = Command::new("sha256sum").arg(&image.path).output().context("sha256sum")?;
        let output = String::from_utf8_lossy(&output.stdout);
        let digest = output.split(' ').next().filter(|digest| digest.len() == 64).context("sha256sum")?;
        Ok(Self { file: Path::new(ITS_CACHE).join(digest) })
    }

    fn remove(&self) -> Result<()> {
        if self.file.exists() {
            fs::remove_file(&self.file).with_context(|| self.file.display().to_string())?;
        }
        Ok(())
    }

    /// Makes the file, with nothing but the metadata.
    fn write(&self, image: &Image) -> Result<()> {
        self.remove()?;
        fs::create_dir_all(ITS_CACHE)?;
        let (from, to) = (File::open(&image.path)?, File::create(&self.file)?);
        to.set_len(image.size)?;
        let metadata = image.metadata()?;
        if image.size - metadata > TAIL {
            bail!("the metadata of {} is not at its end", image.path.display());
        }
        for (start, end) in [(0, 4096), (metadata, image.size)] {
            let mut bytes = vec![0; usize::try_from(end - start)?];
            from.read_exact_at(&mut bytes, start)?;
            to.write_all_at(&bytes, start)?;
        }
        Ok(())
    }
}

impl Drop for ItsFile {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("{error:#}");
        }
    }
}

/// Seconds for the small files and for the part of the large one, by mount.erofs; or why it does not work.
fn reads_of(program: &Path, registry: SocketAddr, bench: &Bench) -> Result<Result<[f64; 2], String>> {
    let dir = bench.mount_point();
    let mut mount = command(program, "erofs.fanotify", registry, &dir);
    let status = mount.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    if !status.success() {
        return Ok(Err(status.to_string()));
    }
    let reads = reads(bench, &dir);
    unmount(program, &dir)?;
    reads.map(Ok)
}

/// The same reads by ferofs, with an empty cache.
fn own(bench: &Bench, registry: SocketAddr) -> Result<[f64; 2]> {
    let cache = CacheDir::new(&bench.dir)?;
    let cache_option = cache.option();
    let location = format!("oci://{registry}/fleet:1");
    let options = ["--roothash", bench.container.root.as_str(), &cache_option];
    let mounted = bench.ferofs.mount(&location, &bench.mount_point(), &options)?;
    let reads = reads(bench, mounted.path())?;
    mounted.end()?;
    Ok(reads)
}

fn reads(bench: &Bench, mounted: &Path) -> Result<[f64; 2]> {
    let start = Instant::now();
    for file in bench.container.sample(FILES, 0) {
        super::remote::read_file(&mounted.join(file))?;
    }
    let small = start.elapsed();
    let start = Instant::now();
    let mut large = File::open(mounted.join(LARGE_FILE))?.take(LARGE_BYTES);
    std::io::copy(&mut large, &mut std::io::sink())?;
    Ok([small.as_secs_f64(), start.elapsed().as_secs_f64()])
}
