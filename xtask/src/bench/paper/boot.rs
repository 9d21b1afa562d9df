//! How long real programs take to start from a mounted tree that is not in memory (the paper's start-up of applications),
//! alone and while fio loads the disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferofs_tests::need;

use super::super::contestant::Lacks;
use super::super::measure::{quietly, set_warm};
use super::Bench;
use super::programs::PROGRAMS;
use super::record::{Values, values};
use super::stage::{Entrant, FILE, Stage, leading_entrants, wanted};

/// Starts are short and vary much: more rounds than of other things.
const MORE: usize = 2;

pub(super) fn boot(bench: &mut Bench) -> Result<()> {
    let mut cases = Vec::new();
    for load in ["alone", "with load"] {
        cases.extend(
            PROGRAMS
                .iter()
                .take(bench.stage.scale.programs)
                .map(|program| format!("{}, {load}", program.name)),
        );
    }
    let rounds = bench.stage.scale.rounds * MORE - 1;
    bench.compete("boot", rounds, &cases, &leading_entrants(), |stage, case, entrant| {
        let (name, load) = case.split_once(", ").context("a case has two parts")?;
        start(stage, name, load == "with load", entrant)
    })
}

fn start(stage: &Stage, name: &str, load: bool, entrant: &Entrant) -> Result<Values> {
    if !need::is_root() {
        return Err(Lacks("needs root, for chroot".into()).into());
    }
    let program = PROGRAMS.iter().find(|program| program.name == name).context("a program")?;
    let contestant = stage.contestant("programs", entrant)?;
    if !stage.subject("programs")?.join(program.command[0].trim_start_matches('/')).exists() {
        return Err(Lacks(format!("needs {}", program.command[0])).into());
    }
    set_warm(&contestant.image, false)?;
    let load = load.then(|| Load::start(stage)).transpose()?;
    let mounted = contestant.mount(&stage.daemons, &stage.mount_point()?)?;
    let null = Null::bind(&mounted.path().join("dev/null"))?;
    let mut chroot = Command::new(need::find_tool("chroot").context("no chroot")?);
    chroot.arg(mounted.path()).args(program.command).env_clear().env("PATH", "/usr/bin");
    let start = Instant::now();
    let output = chroot.stdin(Stdio::null()).output()?;
    let wall = start.elapsed();
    drop((load, null));
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        bail!("{name}: {}: {said}", output.status);
    }
    let mut all = values([("ms", wall.as_secs_f64() * 1e3)]);
    if let Some(cpu) = mounted.cpu() {
        all.extend(values([("daemon_ms", cpu * 1e3)]));
    }
    Ok(all)
}

/// The null device in a tree that has none: programs open it for reading and writing.
struct Null(PathBuf);

impl Null {
    fn bind(at: &Path) -> Result<Self> {
        quietly(Command::new("mount").args(["--bind", "/dev/null"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }
}

impl Drop for Null {
    fn drop(&mut self) {
        if let Err(error) = quietly(Command::new("umount").arg(&self.0)) {
            eprintln!("{error:#}");
        }
    }
}

/// fio in the background, reading the disk at random.
struct Load(Child);

impl Load {
    fn start(stage: &Stage) -> Result<Self> {
        wanted(stage.tools.fio.as_deref(), "fio")?;
        let file = stage.subject(if stage.scale.subjects.contains(&"mixed") { "mixed" } else { "text" })?;
        let mut fio = Command::new("fio");
        fio.args(["--name=load", "--readonly", "--rw=randread", "--bs=4k", "--ioengine=psync", "--direct=1"]);
        fio.args(["--numjobs=2", "--thread", "--time_based", "--runtime=60"]);
        fio.arg(format!("--filename={}", Path::new(&file).join(FILE).display()));
        let child = fio.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        // Until it is under way.
        thread::sleep(Duration::from_millis(300));
        Ok(Self(child))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // It may have ended; then there is nothing to end.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
