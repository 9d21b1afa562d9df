//! The memory that this process may still take, and how many workers fit into it. Linux kills a
//! process that exceeds the memory limit of its control group (cgroup), without a message.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bytes of address space for the stack of a thread. The memory of most of it is never touched.
pub const STACK: u64 = 2 << 20;
/// Bytes at most of a file with limits.
const LONGEST: u64 = 16 << 10;
/// What limits the memory of this process, for messages.
const ADDRESS_SPACE: &str = "the limit on address space (ulimit -v)";
const CGROUP: &str = "the memory limit of the cgroup";
const MACHINE: &str = "the free memory of the machine";
/// Limits of version 1 of cgroups from this many bytes on mean that there is none.
const NO_LIMIT: u64 = 1 << 60;

/// The bytes that this process may still take, and what limits them; `None` if nothing is known.
#[must_use]
pub fn free_memory() -> Option<(u64, &'static str)> {
    free(Path::new("/"))
}

/// The error of work that needs `needed` bytes, more than are free. `hint` says what needs less.
#[must_use]
pub fn too_little_memory(needed: u64, free: (u64, &str), hint: &str) -> io::Error {
    let (free, limit) = free;
    let text = format!(
        "out of memory: {needed} bytes more are needed, and {limit} leaves {free}: raise it{hint}"
    );
    io::Error::new(io::ErrorKind::OutOfMemory, text)
}

/// The number of workers to start: `asked`, or one for each processor, but under a limit on the
/// memory of this process only as many as fit into half of it, with `each` bytes for a worker. At
/// least one: what a worker needs is an upper bound.
#[must_use]
pub fn fitting_workers(asked: Option<NonZeroUsize>, each: u64) -> usize {
    let asked = asked.or_else(|| std::thread::available_parallelism().ok());
    let fitting = |free: u64| free / 2 / each.saturating_add(STACK);
    let most = limited_memory().map_or(u64::MAX, fitting).max(1);
    asked.map_or(1, NonZeroUsize::get).min(usize::try_from(most).unwrap_or(usize::MAX))
}

/// The bytes that this process could take when it first asked, if its cgroup or its address space
/// is limited.
#[must_use]
pub fn limited_memory() -> Option<u64> {
    static LIMITED: OnceLock<Option<u64>> = OnceLock::new();
    let limits = || [address_space(Path::new("/")), cgroup_at_start()];
    *LIMITED.get_or_init(|| limits().into_iter().flatten().min())
}

/// What the limits of the cgroup left when this process first asked: reading them takes a file for
/// each cgroup.
fn cgroup_at_start() -> Option<u64> {
    static CGROUP: OnceLock<Option<u64>> = OnceLock::new();
    *CGROUP.get_or_init(|| cgroup(Path::new("/")))
}

/// Lets the kernel refuse memory that the cgroup does not have, instead of killing the process:
/// sets the limit on data (`RLIMIT_DATA`). It counts what is allocated: `unused` percent of the
/// free memory can be allocated, too, because they are never used. Programs that this process
/// starts inherit the limit.
#[cfg(target_os = "linux")]
pub fn refuse_memory_beyond_cgroup(unused: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    /// Bytes that the kernel takes for stacks of its own and for pages that wait to be written.
    const OF_KERNEL: u64 = 3 << 20;
    let Some(free) = cgroup_at_start() else { return };
    let used = kib(&read(Path::new("/"), "proc/self/status"), "VmData:").unwrap_or(0);
    let free = free.saturating_sub(OF_KERNEL + free / 32);
    let most = used.saturating_add(free / 100 * (100 + unused));
    let old = getrlimit(Resource::Data);
    let current = Some(old.current.map_or(most, |own| own.min(most)));
    // Without the limit the process can be killed, as before.
    let _ = setrlimit(Resource::Data, Rlimit { current, ..old });
}

/// As [`free_memory`]. `root` is `/`, except in tests.
fn free(root: &Path) -> Option<(u64, &'static str)> {
    let meminfo = read(root, "proc/meminfo");
    let machine = kib(&meminfo, "MemAvailable:").map(|bytes| bytes.saturating_add(swap(&meminfo)));
    let limits = [(address_space(root), ADDRESS_SPACE), (cgroup(root), CGROUP), (machine, MACHINE)];
    limits.into_iter().filter_map(|(bytes, limit)| Some((bytes?, limit))).min()
}

fn read(root: &Path, path: impl AsRef<Path>) -> String {
    // One read: the kernel tells no size of these files, and a limit saves asking for it.
    let mut text = String::with_capacity(LONGEST as usize);
    let file =
        File::open(root.join(path)).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    file.map(|_| text).unwrap_or_default()
}

fn kib(text: &str, key: &str) -> Option<u64> {
    Some(field(text, key)?.saturating_mul(1 << 10))
}

fn swap(meminfo: &str) -> u64 {
    kib(meminfo, "SwapFree:").unwrap_or(0)
}

/// What the limit on address space leaves.
fn address_space(root: &Path) -> Option<u64> {
    let limit = field(&read(root, "proc/self/limits"), "Max address space")?;
    Some(limit.saturating_sub(kib(&read(root, "proc/self/status"), "VmSize:").unwrap_or(0)))
}

/// What the limits of the cgroup and of those above it leave.
fn cgroup(root: &Path) -> Option<u64> {
    let free = |(version, dir): (CgroupVersion, PathBuf)| {
        let number = |name: &str| read(root, dir.join(name)).trim().parse::<u64>().ok();
        let [max, used, swap_max, active, inactive] = match version {
            CgroupVersion::Two => {
                ["memory.max", "memory.current", "memory.swap.max", "active_file", "inactive_file"]
            }
            CgroupVersion::One => [
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "memory.memsw.limit_in_bytes",
                "total_active_file",
                "total_inactive_file",
            ],
        };
        let max = number(max).filter(|max| *max < NO_LIMIT)?;
        let (used, stat) = (number(used)?, read(root, dir.join("memory.stat")));
        // The kernel frees the page cache of files before it ends processes.
        let cached: u64 = [active, inactive].iter().filter_map(|key| field(&stat, key)).sum();
        let swap_max = number(swap_max).map(|most| match version {
            CgroupVersion::Two => most,
            // One on memory and swap together.
            CgroupVersion::One => most.saturating_sub(max),
        });
        let free = max.saturating_sub(used.saturating_sub(cached));
        let swap = swap(&read(root, "proc/meminfo")).min(swap_max.unwrap_or(u64::MAX));
        Some(free.saturating_add(swap))
    };
    cgroups(root, "memory").into_iter().filter_map(free).min()
}

#[derive(Clone, Copy)]
enum CgroupVersion {
    One,
    Two,
}

/// The directories, below `root`, of this process's cgroup and of those above it that can have
/// limits of `controller`. In a container, those of cgroups outside it are missing.
fn cgroups(root: &Path, controller: &str) -> Vec<(CgroupVersion, PathBuf)> {
    let mut found = Vec::new();
    for line in read(root, "proc/self/cgroup").lines() {
        // The number of the hierarchy, its controllers, and the path; version 2 has the number 0
        // and no controllers.
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (version, dir) = match controllers {
            "" => (CgroupVersion::Two, ""),
            _ if controllers.split(',').any(|name| name == controller) => {
                (CgroupVersion::One, controller)
            }
            _ => continue,
        };
        let base = Path::new("sys/fs/cgroup").join(dir);
        let paths = Path::new(path.trim_start_matches('/')).ancestors();
        found.extend(paths.map(|path| (version, base.join(path))));
    }
    found
}

/// Whether this process may have so few threads that a daemon could lack some.
#[must_use]
pub fn are_threads_limited() -> bool {
    has_few_threads(Path::new("/"))
}

fn has_few_threads(root: &Path) -> bool {
    /// A limit above this is not one for a daemon.
    const FEW: u64 = 1 << 10;
    let of_user = field(&read(root, "proc/self/limits"), "Max processes");
    let of_cgroup = |(_, dir): (CgroupVersion, PathBuf)| {
        read(root, dir.join("pids.max")).trim().parse::<u64>().ok()
    };
    let limits = cgroups(root, "pids").into_iter().filter_map(of_cgroup);
    limits.chain(of_user).any(|limit| limit < FEW)
}

/// The number after `key` at the start of a line.
fn field(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_any_cgroup_or_of_the_user_limits_threads() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let few = || has_few_threads(dir.path());
        write("proc/self/cgroup", "7:pids:/x\n0::/a/b\n");
        write("proc/self/limits", "Max processes             96365                96365\n");
        write("sys/fs/cgroup/a/b/pids.max", "max\n");
        assert!(!few());
        write("sys/fs/cgroup/a/pids.max", "20\n");
        assert!(few());
        write("sys/fs/cgroup/a/pids.max", "2000\n");
        write("sys/fs/cgroup/pids/x/pids.max", "20\n");
        assert!(few());
        write("sys/fs/cgroup/pids/x/pids.max", "max\n");
        write("proc/self/limits", "Max processes             8                    8\n");
        assert!(few());
    }

    #[test]
    fn the_smallest_limit_counts() {
        let dir = tempfile::tempdir().unwrap();
        // Each step adds files to those of the steps before it.
        let steps: [(&[(&str, &str)], _); 5] = [
            (&[], None),
            (
                &[("proc/meminfo", "MemAvailable: 3000 kB\nSwapFree: 1000 kB\n")],
                Some((4_096_000, MACHINE)),
            ),
            (
                &[
                    (
                        "proc/self/limits",
                        "Max cpu time  9  9\nMax address space  4096000  unlimited\n",
                    ),
                    ("proc/self/status", "VmPeak:\t 900 kB\nVmSize:\t 800 kB\n"),
                ],
                Some((3_276_800, ADDRESS_SPACE)),
            ),
            // The limit is that of a cgroup above; the innermost ones have none, or are not
            // visible.
            (
                &[
                    ("proc/self/cgroup", "0::/a/b/c\n"),
                    ("sys/fs/cgroup/a/memory.max", "500000\n"),
                    ("sys/fs/cgroup/a/memory.current", "300000\n"),
                    (
                        "sys/fs/cgroup/a/memory.stat",
                        "anon 1\ninactive_file 90000\nactive_file 10000\n",
                    ),
                    ("sys/fs/cgroup/a/memory.swap.max", "7\n"),
                    ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ],
                Some((300_007, CGROUP)),
            ),
            // Version 1, in a container.
            (
                &[
                    ("proc/self/cgroup", "5:cpu:/x\n4:memory:/docker/0123\n0::/\n"),
                    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "400000\n"),
                    ("sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n"),
                    ("sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "400005\n"),
                    (
                        "sys/fs/cgroup/memory/memory.stat",
                        "inactive_file 1\ntotal_inactive_file 20000\n",
                    ),
                ],
                Some((320_005, CGROUP)),
            ),
        ];
        for (files, expected) in steps {
            for (path, text) in files {
                let path = dir.path().join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            assert_eq!(free(dir.path()), expected);
        }
    }
}
