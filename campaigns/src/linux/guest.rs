//! The program in the virtual machine: mounts one image after the other, and prints a line for each.
//!
//! A line of /cases: number, base image, size, digest of the tree that our reader shows, and the changes as `position:hex`. A line of output:
//! the number, and `ok` if Linux shows the same tree, or else all entries.

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
/// The extra device of an image that has one.
const DEVICE: &str = "/dev/loop1";
const IMAGE: &str = "/tmp/image";
const MOUNT: &str = "/mnt";

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
        let changes: String = changes.iter().map(|(at, bytes)| format!(" {at}:{}", hex(bytes))).collect();
        format!("{number} {base} {size} {expected}{changes}\n")
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (number, base, size, expected) = (number()?, number()? as usize, number()?, number()?);
        let byte = |hex: &[u8]| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok();
        let change = |word: &str| {
            let (at, hex) = word.split_once(':')?;
            Some((at.parse().ok()?, hex.as_bytes().chunks(2).map(byte).collect::<Option<Vec<u8>>>()?))
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
        if self.base != Some(case.base) || self.size != case.size {
            if let Some(old) = self.base.take() {
                losetup(&["-d", LOOP])?;
                if Path::new(&device_of(old)).exists() {
                    losetup(&["-d", DEVICE])?;
                }
            }
            self.bytes = fs::read(format!("/images/{}", case.base))?;
            self.file.set_len(0)?;
            self.file.write_all_at(&self.bytes, 0)?;
            self.file.set_len(case.size)?;
            losetup(&["-r", LOOP, IMAGE])?;
            let device = device_of(case.base);
            if Path::new(&device).exists() {
                losetup(&["-r", DEVICE, &device])?;
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

/// The file with the data that base image `number` has on an extra device, if there is one.
fn device_of(number: usize) -> String {
    format!("/images/{number}.device")
}

fn losetup(args: &[&str]) -> Result<()> {
    let status = Command::new("losetup").args(args).stdout(Stdio::null()).status()?;
    if status.success() { Ok(()) } else { bail!("losetup {args:?}: {status}") }
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
        let found = read(Path::new(&device_of(case.base)).exists());
        let result = match total(&found) == case.expected {
            true => String::from("ok"),
            false => found.iter().map(text).collect::<Vec<_>>().join(" "),
        };
        writeln!(out, "{} {result}", case.number)?;
        // A file system that cannot be unmounted would stay in the way of all others: the host starts the machine again.
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

fn read(has_device: bool) -> Vec<Entry> {
    let options = has_device.then(|| CString::new(format!("device={DEVICE}")).unwrap_or_default());
    let mounted = mount(PathBuf::from(LOOP), MOUNT, "erofs", MountFlags::RDONLY, options.as_deref());
    if let Err(error) = mounted {
        return vec![Entry {
            what: String::from("/:s"),
            value: Err(format!("mount-{}", error.raw_os_error())),
        }];
    }
    entries(&Mounted(Path::new(MOUNT)))
}
