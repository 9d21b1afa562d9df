//! Builds with little memory give the same image, or end with a line that says how much they need.
//! All commands end with a line, and are not killed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ferofs_tests::run::{Run, device_path, ferofs_path};
use ferofs_tests::{need, run};

use crate::common::fixture::{Fixture, usual_tree};

/// The limits to try, in MiB: of the presets, only the default one fits into the first, and all fit
/// into the last.
const LIMITS: [u64; 3] = [90, 180, 400];
const HANG: Duration = Duration::from_secs(300);

/// A cgroup for commands, removed at the end.
struct Cgroup {
    dir: PathBuf,
    limit: &'static str,
}

impl Cgroup {
    /// `None` if this machine has no limits on the memory of cgroups, or does not permit them.
    fn new(name: &str) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (parent, limit) = match own.lines().find_map(|line| line.split_once(":memory:")) {
            Some((_, path)) => (format!("/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"),
            // A cgroup with processes of its own gives its children no limits.
            None => ("/sys/fs/cgroup".to_owned(), "memory.max"),
        };
        let dir = PathBuf::from(format!("{parent}/ferofs-test-{name}-{}", std::process::id()));
        fs::create_dir(&dir).ok()?;
        let cgroup = Self { dir, limit };
        cgroup.set_limit(1 << 30).then_some(cgroup)
    }

    fn set_limit(&self, bytes: u64) -> bool {
        // Only some kernels limit swap.
        let _ = fs::write(self.dir.join("memory.swap.max"), "0");
        fs::write(self.dir.join(self.limit), bytes.to_string()).is_ok()
    }

    /// The ferofs under test, in this cgroup with a limit of these bytes.
    fn ferofs(&self, bytes: u64) -> Run {
        assert!(self.set_limit(bytes));
        let enter = "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"";
        run!("sh -c", enter, &self.dir, ferofs_path())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}

/// About 2 MB that need large tables.
fn lines(number: u32) -> String {
    (0..180_000u32).map(|line| format!("{}\n", line.wrapping_mul(line) ^ number)).collect()
}

/// Builds with each preset within each limit, in which `ferofs` starts the command.
fn build_within_limits(ferofs: impl Fn(u64) -> Run) {
    // On disk: tmpfs would take the memory.
    let fixture = Fixture::on_disk(&usual_tree());
    for number in 0..6 {
        fixture.write(number.to_string(), lines(number));
    }
    for preset in ["default", "small", "smallest", "backup"] {
        let build = |run: Run, image: &str| {
            let run = run.args([
                "build",
                "--force",
                "-T0",
                "-U6ba7b810-9dad-11d1-80b4-00c04fd430c8",
                "--preset",
                preset,
            ]);
            run.arg(fixture.source()).arg(fixture.path(image)).run()
        };
        build(Run::new(ferofs_path()), "unlimited").success();
        let codes = LIMITS.map(|mib| {
            let outcome = build(ferofs(mib << 20), "limited");
            match outcome.code {
                0 => {
                    let [unlimited, limited] =
                        ["unlimited", "limited"].map(|name| fs::read(fixture.path(name)).unwrap());
                    assert!(unlimited == limited, "{preset} within {mib} MiB");
                }
                _ => {
                    let is_clear = outcome.stderr.contains(" bytes more are needed, and ");
                    assert!(
                        is_clear && outcome.stderr.lines().count() == 1,
                        "{preset}: {outcome:?}"
                    );
                }
            }
            outcome.code
        });
        assert!(codes.is_sorted_by(|a, b| a >= b), "{preset}: {codes:?}");
        assert_eq!(
            (codes[0], codes[2]),
            (if preset == "default" { 0 } else { 8 }, 0),
            "{preset}: {codes:?}"
        );
    }
}

#[test]
fn builds_follow_the_limit_on_address_space() {
    build_within_limits(|bytes| Run::limited(ferofs_path(), Some(bytes), HANG));
}

#[test]
fn builds_follow_the_limit_of_their_cgroup() {
    require!(need::root());
    let Some(cgroup) = Cgroup::new("build") else {
        need::lacks(need::CGROUPS);
        return;
    };
    build_within_limits(|bytes| cgroup.ferofs(bytes));
}

/// Linux kills a process that exceeds the limit of its cgroup, and nothing says why.
#[test]
fn no_command_is_killed_by_the_limit_of_its_cgroup() {
    require!(need::root());
    let Some(cgroup) = Cgroup::new("commands") else {
        need::lacks(need::CGROUPS);
        return;
    };
    let fixture = Fixture::on_disk(&usual_tree());
    for number in 0..3 {
        fixture.write(number.to_string(), lines(number));
    }
    let old = fixture.build("old", ["--preset", "smallest"]);
    fixture.write("1", lines(7));
    fixture.build("new", ["--preset", "smallest"]);
    for command in ["patch create @old @new -o @patch", "delta create @old @new -o @delta"] {
        fixture.line(command).success();
    }
    for command in [
        "cat --sums @old",
        "check --deep @old",
        "diff --quiet @old @old",
        "extract --overwrite @old @tree",
        "extract --tar @tar @old",
        "patch create @old @new -o @out.patch",
        "patch add @image @source",
        "patch apply @image @patch",
        "delta create @old @new -o @out.delta",
        "delta apply @old @delta @out",
        "verity format @image",
    ] {
        // In less, the page cache and the kernel's own memory count more than what is left for data.
        let codes = [40, 100, 1024].map(|mib| {
            fs::copy(&old, fixture.path("image")).unwrap();
            let outcome = cgroup.ferofs(mib << 20).args(fixture.words(command)).run();
            let lines = outcome.stderr.lines().count();
            assert!(
                matches!((outcome.code, lines), (0, _) | (8, 1)),
                "{command}, {mib} MiB: {outcome:?}"
            );
            outcome.code
        });
        assert_eq!(codes[2], 0, "{command}: {codes:?}");
    }
}

/// Rust would abort, with a line for each thread.
#[test]
fn a_command_without_memory_says_so_in_one_line() {
    let fixture = Fixture::new(&usual_tree());
    let image = fixture.build("image", ["--preset", "default"]);
    let (ferofs, device): (&[&str], &[&str]) =
        (&["check", "--deep", "--workers", "1"], &["check", "--deep"]);
    for (program, words) in [(ferofs_path(), ferofs), (device_path().as_path(), device)] {
        // How much is mapped before the first allocation depends on the build of the program.
        let check =
            |mib: u64| Run::limited(program, Some(mib << 20), HANG).args(words).arg(&image).run();
        let run = (1..64).rev().map(check).find(|run| run.code != 0).unwrap();
        assert_eq!((run.code, run.stderr.lines().count()), (8, 1), "{run:?}");
        assert!(run.stderr.contains("memory"), "{run:?}");
    }
}
