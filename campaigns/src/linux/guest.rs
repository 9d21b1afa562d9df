//! The program in the virtual machine: mounts one image after the other, and prints a line for
//! each.
//!
//! A line of /cases: number, base image, size, digest of the tree that our reader shows, and the
//! changes as `position:hex`. A line of output: the number, and `ok` if Linux shows the same tree,
//! or else all entries.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use super::digest::{Entry, Mounted, entries, total};
use crate::hostile::base_images::TestImage;

const LOOP: &str = "/dev/loop0";
/// The number of the loop device of an image's first extra device. `ferofs mount` takes the lowest
/// free ones.
const FIRST_EXTRA: usize = 4;
/// The command that mounts sealed images, if the machine has it.
const FEROFS: &str = "/bin/ferofs";
const IMAGE: &str = "/tmp/image";
const MOUNT: &str = "/mnt";
/// Where an image with equal files is mounted.
const EQUAL_MOUNT: &str = "/run";
/// Growth of the page cache is counted in this many bytes: Linux counts each processor's pages
/// apart for a while, and other files are small.
const CACHE_UNIT: u64 = 4 << 20;

/// An image for the virtual machine.
pub(crate) struct Case {
    pub(crate) number: u64,
    pub(crate) base: usize,
    pub(crate) expected: u64,
    pub(crate) size: u64,
    pub(crate) changes: Vec<(usize, Vec<u8>)>,
}

impl Case {
    pub(crate) fn new(number: u64, base: usize, expected: u64, image: &TestImage) -> Self {
        Self { number, base, expected, size: image.size, changes: image.changes.clone() }
    }

    pub(crate) fn line(&self) -> String {
        let Self { number, base, expected, size, changes } = self;
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let changes: String =
            changes.iter().map(|(at, bytes)| format!(" {at}:{}", hex(bytes))).collect();
        format!("{number} {base} {size} {expected}{changes}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (number, base, size, expected) = (number()?, number()? as usize, number()?, number()?);
        let byte = |hex: &[u8]| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok();
        let change = |word: &str| {
            let (at, hex) = word.split_once(':')?;
            Some((
                at.parse().ok()?,
                hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?,
            ))
        };
        let changes = words.map(change).collect::<Option<_>>()?;
        Some(Self { number, base, expected, size, changes })
    }
}

/// The image in the loop device.
struct Device {
    file: File,
    bytes: Vec<u8>,
    base: Option<usize>,
    size: u64,
}

impl Device {
    /// Puts the image of `case` into the device.
    fn load(&mut self, case: &Case) -> Result<()> {
        if self.base != Some(case.base) {
            reload_erofs()?;
        }
        if self.base != Some(case.base) || self.size != case.size {
            if let Some(old) = self.base.take() {
                losetup(&["-d", LOOP])?;
                for (device, _) in extra_devices(old) {
                    losetup(&["-d", &device])?;
                }
            }
            self.bytes = fs::read(format!("/images/{}", case.base))?;
            self.file.set_len(0)?;
            self.file.write_all_at(&self.bytes, 0)?;
            self.file.set_len(case.size)?;
            losetup(&["-r", LOOP, IMAGE])?;
            for (device, file) in extra_devices(case.base) {
                losetup(&["-r", &device, &file])?;
            }
            (self.base, self.size) = (Some(case.base), case.size);
        }
        for (at, bytes) in &case.changes {
            self.file.write_all_at(bytes, *at as u64)?;
        }
        Ok(())
    }

    /// Takes the changes back.
    fn restore(&self, case: &Case) -> Result<()> {
        for (at, bytes) in &case.changes {
            self.file.write_all_at(&self.bytes[*at..*at + bytes.len()], *at as u64)?;
        }
        Ok(())
    }
}

/// The loop devices for the extra devices of base image `number`, and the files with their data.
fn extra_devices(number: usize) -> impl Iterator<Item = (String, String)> {
    let pairs = (0..).map(move |extra| {
        (format!("/dev/loop{}", FIRST_EXTRA + extra), format!("/images/{number}.device{extra}"))
    });
    pairs.take_while(|(_, file)| Path::new(file).exists())
}

fn losetup(args: &[&str]) -> Result<()> {
    command("losetup", args)
}

/// Loads the EROFS module again: Linux keeps buffers as large as the images that it has mounted
/// before need, and an image that needs more than its own superblock says would be read without an
/// error.
fn reload_erofs() -> Result<()> {
    command("rmmod", &["erofs"])?;
    command("insmod", &["/modules/erofs.ko"])
}

fn command(program: &str, args: &[&str]) -> Result<()> {
    let status = Command::new(program).args(args).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { bail!("{program} {args:?}: {status}") }
}

/// Runs in the machine until all cases are read.
pub(crate) fn run() -> Result<()> {
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(IMAGE)?;
    let mut device = Device { file, bytes: Vec::new(), base: None, size: 0 };
    let mut out = std::io::stdout();
    for line in BufReader::new(File::open("/cases")?).lines() {
        let case = Case::parse(&line?).context("a case that cannot be parsed")?;
        device.load(&case)?;
        writeln!(out, "{} begins", case.number)?;
        let found = read(case.base);
        let result = match total(&found) == case.expected {
            true => String::from("ok"),
            false => found.iter().map(text).collect::<Vec<_>>().join(" "),
        };
        writeln!(out, "{} {result}", case.number)?;
        // A file system that cannot be unmounted would stay in the way of all others: the host
        // starts the machine again.
        match unmount(MOUNT, UnmountFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => bail!("cannot unmount: {error}"),
        }
        device.restore(&case)?;
    }
    writeln!(out, "end")?;
    Ok(())
}

fn text(entry: &Entry) -> String {
    match &entry.value {
        Ok(digest) => format!("{}={digest:x}", entry.what),
        Err(error) => format!("{}!{error}", entry.what),
    }
}

/// The entry that [`text`] wrote.
pub(crate) fn parse_entry(word: &str) -> Option<Entry> {
    let at = word.rfind(['=', '!'])?;
    let (what, value) = (&word[..at], &word[at + 1..]);
    let value = match word.as_bytes()[at] {
        b'=' => Ok(u64::from_str_radix(value, 16).ok()?),
        _ => Err(value.to_owned()),
    };
    Some(Entry { what: what.to_owned(), value })
}

/// What Linux shows of base image `number`, which is in the loop devices.
fn read(number: usize) -> Vec<Entry> {
    let failed = |error| vec![Entry { what: String::from("/:s"), value: Err(error) }];
    let equal = format!("/images/{number}.equal");
    if Path::new(&equal).exists() {
        return read_equal(&equal).unwrap_or_else(failed);
    }
    let mounted = match fs::read_to_string(format!("/images/{number}.roothash")) {
        Ok(root_hash) if Path::new(FEROFS).exists() => mount_verified(root_hash.trim()),
        _ => mount_devices(number),
    };
    match mounted {
        Ok(()) => entries(&Mounted(Path::new(MOUNT))),
        Err(error) => failed(error),
    }
}

fn mount_devices(number: usize) -> Result<(), String> {
    let options: Vec<_> =
        extra_devices(number).map(|(device, _)| format!("device={device}")).collect();
    mount_erofs(LOOP, MOUNT, &options.join(","))
}

fn mount_erofs(device: &str, dir: &str, options: &str) -> Result<(), String> {
    let options = CString::new(options).unwrap_or_default();
    let options = (!options.is_empty()).then_some(options.as_c_str());
    mount(PathBuf::from(device), dir, "erofs", MountFlags::RDONLY, options)
        .map_err(|error| format!("mount-{}", error.raw_os_error()))
}

/// What Linux shows of the image in the loop device, and how the page cache grows while the files
/// of the image `equal` are read, which is mounted in the same domain and then in another one.
fn read_equal(equal: &str) -> Result<Vec<Entry>, String> {
    let device = format!("/dev/loop{FIRST_EXTRA}");
    let message = |error: anyhow::Error| error.to_string().replace(' ', "-");
    mount_erofs(LOOP, MOUNT, "inode_share,domain_id=one")?;
    let mut found = entries(&Mounted(Path::new(MOUNT)));
    losetup(&["-r", &device, equal]).map_err(message)?;
    let growth = |domain| -> Result<u64, String> {
        mount_erofs(&device, EQUAL_MOUNT, &format!("inode_share,domain_id={domain}"))?;
        let before = cached();
        entries(&Mounted(Path::new(EQUAL_MOUNT)));
        let after = cached();
        unmount(EQUAL_MOUNT, UnmountFlags::empty()).map_err(|error| error.to_string())?;
        Ok(after.saturating_sub(before))
    };
    let cache = growth("one").and_then(|same| Ok(page_cache(same, growth("two")?)));
    // The next image needs the device, also if this one failed.
    losetup(&["-d", &device]).map_err(message)?;
    found.extend(cache?);
    Ok(found)
}

/// Bytes of the page cache that hold files.
fn cached() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Cached:"));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    number.unwrap_or_default() << 10
}

/// The entries of the growth of the page cache, in bytes, in the same domain and in another one.
pub(crate) fn page_cache(same: u64, other: u64) -> [Entry; 2] {
    let entry = |what: &str, bytes: u64| Entry {
        what: what.to_owned(),
        value: Ok((bytes + CACHE_UNIT / 2) / CACHE_UNIT),
    };
    [entry("/:same-domain", same), entry("/:other-domain", other)]
}

/// Mounts a sealed image as users do: Linux must verify it with dm-verity.
fn mount_verified(root_hash: &str) -> Result<(), String> {
    let words = ["mount", "--kernel", "--roothash", root_hash, IMAGE, MOUNT];
    let mounted = Command::new(FEROFS).args(words).stdout(Stdio::null()).status();
    if !mounted.is_ok_and(|status| status.success()) {
        return Err(String::from("ferofs-mount"));
    }
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let is_verified = |line: &str| {
        line.starts_with("/dev/mapper/ferofs-") && line.contains(&format!(" {MOUNT} erofs "))
    };
    mounts.lines().any(is_verified).then_some(()).ok_or_else(|| String::from("no-dm-verity"))
}
