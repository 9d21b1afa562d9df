//! The start time of real programs from a mounted tree that is not in the page cache (the paper's
//! start-up of applications), alone and while fio reads from the same disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ferofs_tests::need;

use crate::common::rounds::{PageCache, set_page_cache};
use crate::paper::evaluation::Evaluation;
use crate::paper::record::{Values, values};
use crate::paper::setup::{self, FILE, System, Workspace, main_systems};
use ferofs_devtools::shell::run_quietly;

/// The tree with the programs.
pub(crate) const PROGRAMS_TREE: &str = "programs";

/// Names and command lines, which need nothing outside of the tree and write nothing.
const PROGRAMS: [(&str, &[&str]); 5] = [
    (
        "python3",
        &[
            "/usr/bin/python3",
            "-c",
            "import json, asyncio, http.client, decimal, sqlite3, unittest",
        ],
    ),
    ("git", &["/usr/bin/git", "help", "--all"]),
    ("perl", &["/usr/bin/perl", "-MPOSIX", "-MEncode", "-MIO::Socket", "-MData::Dumper", "-e1"]),
    ("gcc", &["/usr/bin/gcc", "-fsyntax-only", "-include", "stdio.h", "-x", "c", "/dev/null"]),
    ("vim", &["/usr/bin/vim.basic", "-es", "-u", "NONE", "-c", "qa!"]),
];

pub(crate) fn boot(evaluation: &mut Evaluation) -> Result<()> {
    let mut cases = Vec::new();
    for load in ["alone", "with load"] {
        cases.extend(PROGRAMS.iter().map(|(program, _)| format!("{program}, {load}")));
    }
    let rounds = setup::ROUNDS;
    evaluation.measure_all("boot", rounds, &cases, &main_systems(), |workspace, case, system| {
        let (name, load) = case.split_once(", ").context("a case has two parts")?;
        start(workspace, name, load == "with load", system)
    })
}

fn start(workspace: &Workspace, name: &str, load: bool, system: &System) -> Result<Values> {
    let (_, command) =
        PROGRAMS.iter().find(|(program, _)| *program == name).context("a program")?;
    let file_system = workspace.file_system(PROGRAMS_TREE, system)?;
    set_page_cache(&file_system.image, PageCache::Cold)?;
    let load = load.then(|| DiskLoad::start(workspace)).transpose()?;
    let mounted = file_system.mount(&workspace.programs.daemons(), &workspace.mount_point()?)?;
    let null = NullDevice::bind(&mounted.path().join("dev/null"))?;
    let mut chroot = Command::new(need::find_tool("chroot").context("no chroot")?);
    chroot.arg(mounted.path()).args(*command).env_clear().env("PATH", "/usr/bin");
    let start = Instant::now();
    let started = run_quietly(chroot.stdin(Stdio::null()));
    let wall = start.elapsed();
    drop((load, null));
    started.with_context(|| name.to_owned())?;
    let mut all = values([("ms", wall.as_secs_f64() * 1e3)]);
    if let Some(cpu) = mounted.cpu() {
        all.extend(values([("daemon_ms", cpu * 1e3)]));
    }
    Ok(all)
}

/// Binds /dev/null into the tree, because programs open it for reading and writing. Dropping the
/// value unmounts it.
struct NullDevice(PathBuf);

impl NullDevice {
    fn bind(at: &Path) -> Result<Self> {
        run_quietly(Command::new("mount").args(["--bind", "/dev/null"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for NullDevice {
    fn drop(&mut self) {
        if let Err(error) = run_quietly(Command::new("umount").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}

/// fio in the background, with random reads from the disk. Dropping the value ends it.
struct DiskLoad(Child);

impl DiskLoad {
    fn start(workspace: &Workspace) -> Result<Self> {
        let file = workspace.dataset("mixed")?;
        let mut fio = Command::new("fio");
        fio.args([
            "--name=load",
            "--readonly",
            "--rw=randread",
            "--bs=4k",
            "--ioengine=psync",
            "--direct=1",
        ]);
        fio.args(["--numjobs=2", "--thread", "--time_based", "--runtime=60"]);
        fio.arg(format!("--filename={}", Path::new(&file).join(FILE).display()));
        let child = fio.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // Wait until fio reads.
        thread::sleep(Duration::from_millis(300));
        Ok(Self(child))
    }
}

impl Drop for DiskLoad {
    fn drop(&mut self) {
        // Both fail only if fio has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
