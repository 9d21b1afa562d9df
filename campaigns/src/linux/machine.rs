//! A virtual machine with a kernel of Debian, which QEMU emulates: it reads images, and starts again after one that stops it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::linux::guest::Case;

/// Time without a line after which the machine hangs: emulation of a start takes minutes on a busy machine.
const HANG: Duration = Duration::from_secs(300);
/// Starts without any progress after which the machine is given up.
const MAX_IDLE_STARTS: u32 = 3;
/// The directory of the scripts.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vm");

/// A virtual machine of a release of Linux.
pub(crate) struct Machine {
    pub(crate) release: String,
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
    /// Gets the kernel, and writes the initramfs with the base images in `images`.
    pub(crate) fn new(release: &str, work_dir: &Path, images: &Path) -> Result<Self> {
        let (kernel, dir) =
            (work_dir.join(format!("linux-{release}")), work_dir.join(format!("machine-{release}")));
        fs::create_dir_all(&dir)?;
        script("kernel.sh", &[release.as_ref(), kernel.as_ref()])?;
        let program = std::env::current_exe()?;
        script("reader.sh", &[&kernel, &program, images, &dir.join("base")])?;
        fs::copy(kernel.join("vmlinuz"), dir.join("vmlinuz"))?;
        Ok(Self { release: release.to_owned(), dir })
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
                bail!("Linux {} does not start: see {}", self.release, self.dir.join("log").display());
            }
            let next = rest.iter().position(|case| !answers.contains_key(&case.number));
            rest = next.and_then(|at| rest.get(at..)).unwrap_or_default();
            if ended && !rest.is_empty() {
                bail!("the machine did not read all images: see {}", self.dir.join("log").display());
            }
        }
        Ok(answers)
    }

    /// Starts the machine, and collects its answers until it ends or hangs. Returns whether it read everything.
    fn start(&self, cases: &[Case], answers: &mut Answers) -> Result<bool> {
        let text: String = cases.iter().map(Case::line).collect();
        let initramfs = self.dir.join("initramfs");
        let mut file = File::create(&initramfs)?;
        std::io::copy(&mut File::open(self.dir.join("base"))?, &mut file)?;
        file.write_all(&archive("cases", text.as_bytes()))?;
        let mut qemu = Command::new("qemu-system-x86_64");
        // Emulation works everywhere; nested virtualization often does not.
        let accelerator = std::env::var("VM_ACCELERATOR").unwrap_or_else(|_| String::from("tcg"));
        qemu.args(["-cpu", "max", "-m", "1024"]);
        qemu.arg("-machine").arg(format!("q35,accel={accelerator}"));
        qemu.args(["-nographic", "-no-reboot", "-nodefaults", "-device", "virtio-serial-pci"]);
        qemu.args(["-chardev", "stdio,id=out", "-device", "virtconsole,chardev=out"]);
        qemu.arg("-serial").arg(format!("file:{}", self.dir.join("log").display()));
        qemu.arg("-kernel").arg(self.dir.join("vmlinuz")).arg("-initrd").arg(initramfs);
        qemu.args(["-append", "console=ttyS0 panic=-1 oops=panic mitigations=off quiet loglevel=1"]);
        let mut child =
            qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("qemu-system-x86_64")?;
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

fn script(name: &str, args: &[&Path]) -> Result<()> {
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
