//! A virtual machine with a kernel of Debian, which QEMU emulates: it reads images, and starts
//! again after one that stops it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ferofs_tests::{need, run, scratch};

use crate::linux::guest::Case;

/// Time without a line after which the machine hangs: emulation of a start takes minutes on a busy
/// machine.
const HANG: Duration = Duration::from_secs(300);
/// Starts without any progress after which the machine is given up.
const MAX_IDLE_STARTS: u32 = 3;
/// MiB of memory of a machine: the images, twice while they are unpacked, and what Linux reads of
/// them.
const MEMORY: &str = "1536";
/// Parameters of Linux: a crash ends the machine. Without expedited grace periods, most of the time
/// of an image would be that of its unmount.
const PARAMETERS: &str =
    "panic=-1 oops=panic mitigations=off rcupdate.rcu_expedited=1 quiet loglevel=1";
/// The directory of the scripts.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vm");

/// A processor, with the size of its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Processor {
    Amd64,
    Arm64,
    /// With pages of 16 KiB.
    Arm64Pages16K,
}

impl Processor {
    /// The end of the names of Debian's packages with kernels for it.
    pub(crate) const fn packages(self) -> &'static str {
        match self {
            Self::Amd64 => "cloud-amd64",
            Self::Arm64 => "cloud-arm64",
            Self::Arm64Pages16K => "arm64-16k",
        }
    }

    /// The size of its pages, in bytes: Linux mounts no larger blocks.
    pub(crate) const fn page(self) -> u64 {
        match self {
            Self::Amd64 | Self::Arm64 => 4096,
            Self::Arm64Pages16K => 16384,
        }
    }

    /// The program of the campaigns for it.
    fn program(self) -> Result<PathBuf> {
        if self == Self::Amd64 {
            return Ok(std::env::current_exe()?);
        }
        let program = scratch::target_dir()
            .join("processors/aarch64-unknown-linux-gnu/debug/ferofs-campaigns");
        match program.exists() {
            true => Ok(program),
            false => {
                bail!("{} is missing: cargo xtask test --kernels builds it", program.display())
            }
        }
    }

    /// QEMU with the options for this processor. Emulation works everywhere; nested virtualization
    /// often does not.
    fn emulator(self) -> Command {
        let mut qemu;
        if self == Self::Amd64 {
            qemu = Command::new("qemu-system-x86_64");
            let accelerator =
                std::env::var("VM_ACCELERATOR").unwrap_or_else(|_| String::from("tcg"));
            qemu.args(["-cpu", "max", "-machine", &format!("q35,accel={accelerator}")]);
        } else {
            qemu = Command::new("qemu-system-aarch64");
            // The usual authentication of pointers takes most of the time of emulation.
            qemu.args(["-cpu", "max,pauth-impdef=on", "-machine", "virt"]);
        }
        qemu
    }

    /// The name of the serial port.
    const fn console(self) -> &'static str {
        match self {
            Self::Amd64 => "ttyS0",
            Self::Arm64 | Self::Arm64Pages16K => "ttyAMA0",
        }
    }
}

/// A kernel of Debian.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// Its release, such as 6.18.
    pub(crate) release: String,
    pub(crate) processor: Processor,
    dir: PathBuf,
}

impl Kernel {
    /// Gets Debian's newest kernel of a release, or the newest of all if `release` is `newest`.
    pub(crate) fn get(release: &str, processor: Processor, work_dir: &Path) -> Result<Self> {
        let packages = processor.packages();
        let dir = work_dir.join(format!("linux-{release}-{packages}"));
        script("kernel.sh", [OsStr::new(release), OsStr::new(packages), dir.as_os_str()])?;
        let release = fs::read_to_string(dir.join("release"))?.trim().to_owned();
        Ok(Self { release, processor, dir })
    }
}

/// A virtual machine with a kernel.
pub(crate) struct Machine {
    pub(crate) kernel: Kernel,
    dir: PathBuf,
}

/// What Linux did with each case: its line, or how it ended.
pub(crate) type Answers = BTreeMap<u64, Answer>;

/// What Linux did with a case.
pub(crate) enum Answer {
    /// The words of the line after the number.
    Line(String),
    /// The kernel crashed.
    Crash,
    /// The kernel did not come back.
    Hang,
}

impl Machine {
    /// Writes the initramfs with the base images in `images`.
    pub(crate) fn new(kernel: &Kernel, work_dir: &Path, images: &Path) -> Result<Self> {
        let Kernel { release, processor, .. } = kernel;
        let dir = work_dir.join(format!("machine-{release}-{}", processor.packages()));
        fs::create_dir_all(&dir)?;
        let (program, base) = (processor.program()?, dir.join("base"));
        let mut words: Vec<OsString> =
            vec![kernel.dir.clone().into(), program.into(), images.into(), base.into()];
        if *processor == Processor::Amd64 {
            let veritysetup = need::find_tool("veritysetup").context("veritysetup is missing")?;
            words.extend([run::ferofs_path().into(), veritysetup.into()]);
        }
        script("reader.sh", words)?;
        Ok(Self { kernel: kernel.clone(), dir })
    }

    /// Lets Linux read all `cases`.
    pub(crate) fn read(&self, cases: &[Case]) -> Result<Answers> {
        let mut answers = Answers::new();
        let (mut rest, mut idle) = (cases, 0);
        while !rest.is_empty() {
            let before = answers.len();
            let ended = self.start(rest, &mut answers)?;
            idle = if answers.len() > before { 0 } else { idle + 1 };
            if idle >= MAX_IDLE_STARTS {
                bail!(
                    "Linux {} does not start: see {}",
                    self.kernel.release,
                    self.dir.join("log").display()
                );
            }
            let next = rest.iter().position(|case| !answers.contains_key(&case.number));
            rest = next.and_then(|at| rest.get(at..)).unwrap_or_default();
            if ended && !rest.is_empty() {
                bail!(
                    "the machine did not read all images: see {}",
                    self.dir.join("log").display()
                );
            }
        }
        Ok(answers)
    }

    /// Starts the machine, and collects its answers until it ends or hangs. Returns whether it read
    /// everything.
    fn start(&self, cases: &[Case], answers: &mut Answers) -> Result<bool> {
        let text: String = cases.iter().map(Case::line).collect();
        let initramfs = self.dir.join("initramfs");
        let mut file = File::create(&initramfs)?;
        std::io::copy(&mut File::open(self.dir.join("base"))?, &mut file)?;
        file.write_all(&archive("cases", text.as_bytes()))?;
        let mut qemu = self.kernel.processor.emulator();
        qemu.args([
            "-m",
            MEMORY,
            "-nographic",
            "-no-reboot",
            "-nodefaults",
            "-device",
            "virtio-serial-pci",
        ]);
        qemu.args(["-chardev", "stdio,id=out", "-device", "virtconsole,chardev=out"]);
        qemu.arg("-serial").arg(format!("file:{}", self.dir.join("log").display()));
        qemu.arg("-kernel").arg(self.kernel.dir.join("vmlinuz")).arg("-initrd").arg(initramfs);
        let console = self.kernel.processor.console();
        qemu.args(["-append", &format!("console={console} {PARAMETERS}")]);
        let name = qemu.get_program().to_owned();
        let child = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| name.display().to_string())?;
        let stdout = child.stdout.take().context("no output")?;
        let (sender, lines) = mpsc::channel();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stdout.take(1 << 30)).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut current = None;
        let end = loop {
            match lines.recv_timeout(HANG) {
                Ok(line) => {
                    let line = line.trim_end();
                    let Some((number, words)) = line.split_once(' ') else {
                        if line == "end" {
                            break None;
                        }
                        continue;
                    };
                    let Ok(number) = number.parse() else { continue };
                    current = match words {
                        "begins" => Some(number),
                        _ => {
                            answers.insert(number, Answer::Line(words.to_owned()));
                            None
                        }
                    };
                }
                Err(mpsc::RecvTimeoutError::Timeout) => break Some(Answer::Hang),
                Err(mpsc::RecvTimeoutError::Disconnected) => break Some(Answer::Crash),
            }
        };
        // It may have ended already.
        let _ = child.kill();
        child.wait()?;
        let _ = reader.join();
        let all = end.is_none();
        if let (Some(number), Some(end)) = (current, end) {
            answers.insert(number, end);
        }
        Ok(all)
    }
}

fn script(name: &str, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<()> {
    let status = Command::new("sh").arg(Path::new(SCRIPTS).join(name)).args(args).status()?;
    if status.success() { Ok(()) } else { bail!("{name}: {status}") }
}

/// A cpio archive with one file, which the kernel unpacks after the archive before it.
fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, mode, content) in [(name, 0o100_644, content), ("TRAILER!!!", 0, &[])] {
        let fields = [1, mode, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, name.len() + 1, 0];
        out.extend_from_slice(b"070701");
        fields.iter().for_each(|field| out.extend_from_slice(format!("{field:08x}").as_bytes()));
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        out.resize(out.len().next_multiple_of(4), 0);
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    out
}
