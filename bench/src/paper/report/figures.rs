//! The figures of the report: what each shows, what the paper says about it, and which claims the values can confirm.
//!
//! Quotations come from public sources only: the paper's abstract, its authors' slides, and a second-hand copy of a talk. Where
//! these give no number, the report gives none.

/// A figure shows the values of one experiment.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) experiment: &'static str,
    pub(crate) title: &'static str,
    /// What is measured, in a sentence or two.
    pub(crate) about: &'static str,
    /// What the paper or another source says about it.
    pub(crate) paper: &'static str,
    pub(crate) metrics: &'static [Metric],
    pub(crate) claims: &'static [Claim],
}

/// A value's name in the log, and how the report shows it.
#[derive(Debug)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) digits: usize,
}

/// A statement that the values can confirm or not.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) statement: &'static str,
    pub(crate) system: &'static str,
    pub(crate) metric: &'static str,
    /// The claim is about cases whose names contain one of these.
    pub(crate) cases: &'static [&'static str],
    pub(crate) relation: Relation,
}

#[derive(Debug)]
pub(crate) enum Relation {
    MoreThan(&'static [&'static str]),
    LessThan(&'static [&'static str]),
    AtMost(f64),
}

const fn metric(name: &'static str, title: &'static str, digits: usize) -> Metric {
    Metric { name, title, digits }
}

const SPEED: Metric = metric("mib_s", "MiB/s", 1);
const CPU: Metric = metric("cpu_s_gib", "processor seconds of the machine per GiB", 2);
const DAEMON: Metric = metric("daemon_s_gib", "of these, the daemon's", 2);
const FEROFS: &str = "ferofs (FUSE)";
const KERNEL: &str = "EROFS (kernel)";
const SQUASHFS: &[&str] =
    &["squashfs 4K (kernel)", "squashfs 8K (kernel)", "squashfs 16K (kernel)", "squashfs 128K (kernel)"];
const ALL: &[&str] = &[""];

pub(crate) const FIGURES: [Figure; 8] = [
    Figure {
        experiment: "micro",
        title: "FIO micro-benchmarks (figures 7 and 8)",
        about: "fio reads a large file in pieces of 4 KiB: in sequence, at random, and the first piece of each 128 KiB. \
                The image is not in the page cache at the start. The machine's processor time includes the start of fio, so it is \
                given only for runs that read much.",
        paper: "“EROFS outperforms existing compressed read-only file systems with various micro-benchmarks” (abstract).",
        metrics: &[SPEED, CPU, DAEMON],
        claims: &[
            Claim {
                statement: "The kernel's EROFS reads faster than squashfs of any block size",
                system: KERNEL,
                metric: "mib_s",
                cases: ALL,
                relation: Relation::MoreThan(SQUASHFS),
            },
            Claim {
                statement: "ferofs reads faster than squashfs of any block size, through FUSE",
                system: FEROFS,
                metric: "mib_s",
                cases: ALL,
                relation: Relation::MoreThan(SQUASHFS),
            },
            Claim {
                statement: "ferofs reads faster than erofsfuse",
                system: FEROFS,
                metric: "mib_s",
                cases: ALL,
                relation: Relation::MoreThan(&["erofsfuse"]),
            },
        ],
    },
    Figure {
        experiment: "sizes",
        title: "Compressed sizes (figure 9)",
        about: "The same files in an image of each system. All but btrfs and ext4 use LZ4HC. For btrfs and ext4, the size is that of the blocks in use.",
        paper: "EROFS is deployed “while nearly halving the storage usage” (abstract). Fixed-size output compresses better \
                than fixed-size input (section 2).",
        metrics: &[metric("percent", "percent of the source", 1), metric("mib", "MiB", 1)],
        claims: &[Claim {
            statement: "EROFS with clusters of 4 KiB is smaller than squashfs 4K",
            system: "ferofs 4K",
            metric: "mib",
            cases: ALL,
            relation: Relation::LessThan(&["squashfs 4K"]),
        }],
    },
    Figure {
        experiment: "memory",
        title: "Memory after reading (figure 10)",
        about: "fio reads a quarter of the file. Charged: memory that the kernel charges to the control group of fio and the \
                daemon, with the page cache that contains the file. Lost: the decrease of the whole machine's free memory, which is \
                noisy. Private: the largest private dirty memory of the daemon.",
        paper: "The authors' slides say “Memory Consumption 89%” of what EROFS saves against squashfs.",
        metrics: &[
            metric("charged_mib", "charged, MiB", 1),
            metric("gone_mib", "lost, MiB", 1),
            metric("private_mib", "private, MiB", 1),
        ],
        claims: &[
            Claim {
                statement: "The kernel's EROFS needs less memory than squashfs 128K",
                system: KERNEL,
                metric: "charged_mib",
                cases: ALL,
                relation: Relation::LessThan(&["squashfs 128K (kernel)"]),
            },
            Claim {
                statement: "The daemon of ferofs needs less memory than erofsfuse",
                system: FEROFS,
                metric: "private_mib",
                cases: ALL,
                relation: Relation::LessThan(&["erofsfuse"]),
            },
        ],
    },
    Figure {
        experiment: "io",
        title: "Read amplification (table 1)",
        about: "fio reads a 32nd of the file (16 MiB of 512 in the full run) in pieces of 4 KiB. The figures are the bytes that a \
                loop device below the image reads, with the kernel's read-ahead, for daemons and for the kernel's drivers. The \
                counters of ferofs give what ferofs itself reads.",
        paper: "The authors' slides say “Read Amplification 84%” of what EROFS saves against squashfs. A second-hand \
                copy of a talk by Huawei (wpsshop.cn, “华为EROFS文件系统的性能测试”) gives MB read for 10 MB of enwik9, \
                sequential, random and stride: EROFS 6.84, 17.09, 16.38; squashfs 8K 6.39, 21.12, 21.83; squashfs \
                128K 4.51, 114.72, 141.86; ext4 10.96, 10.01, 10.02.",
        metrics: &[
            metric("times", "bytes read per byte requested", 2),
            metric("own_times", "of these, read by ferofs itself", 2),
            metric("issued_mib", "MiB read", 1),
        ],
        claims: &[
            Claim {
                statement: "For random and strided reads, the kernel's EROFS reads less than squashfs 8K and 128K",
                system: KERNEL,
                metric: "times",
                cases: &["random", "stride"],
                relation: Relation::LessThan(&["squashfs 8K (kernel)", "squashfs 128K (kernel)"]),
            },
            Claim {
                statement: "For random and strided reads, ferofs reads less than squashfs 8K and 128K",
                system: FEROFS,
                metric: "times",
                cases: &["random", "stride"],
                relation: Relation::LessThan(&["squashfs 8K (kernel)", "squashfs 128K (kernel)"]),
            },
            Claim {
                statement: "For a random read of one block, ferofs itself reads at most two blocks",
                system: FEROFS,
                metric: "own_times",
                cases: &["random"],
                relation: Relation::AtMost(2.0),
            },
        ],
    },
    Figure {
        experiment: "savings",
        title: "Throughput against space savings (figure 11)",
        about: "Generated files: a percentage of each block is zero and the rest is random, so compression saves about this percentage.",
        paper: "No number is public.",
        metrics: &[SPEED, CPU],
        claims: &[Claim {
            statement: "With the largest savings, the kernel's EROFS reads faster than ext4",
            system: KERNEL,
            metric: "mib_s",
            cases: &["@ 95"],
            relation: Relation::MoreThan(&["ext4 (kernel)"]),
        }],
    },
    Figure {
        experiment: "strategies",
        title: "Decoding strategies and policies (section 5.6)",
        about: "ferofs with each policy of decoding; the image is in the page cache.",
        paper: "No number is public. In user space the order may differ from the kernel's: see READING.md.",
        metrics: &[SPEED, DAEMON],
        claims: &[Claim {
            statement: "The default decoding policy needs less processor time than vmap alone and buffer alone",
            system: "auto",
            metric: "daemon_s_gib",
            cases: ALL,
            relation: Relation::LessThan(&["vmap", "buffer"]),
        }],
    },
    Figure {
        experiment: "latency",
        title: "Read latency with little memory",
        about: "Two threads read at random: with enough memory, and in a control group whose limit of 32 MiB is for the threads, \
                the daemon and the page cache together.",
        paper: "With squashfs, a phone lagged, froze and rebooted because memory was short (the authors' slides).",
        metrics: &[
            metric("p99_us", "99th percentile, µs", 1),
            metric("p50_us", "median, µs", 1),
            metric("max_us", "longest, µs", 0),
            SPEED,
        ],
        claims: &[Claim {
            statement: "With 32 MiB, the 99th percentile of ferofs is lower than that of squashfs 128K",
            system: FEROFS,
            metric: "p99_us",
            cases: &["32 MiB"],
            relation: Relation::LessThan(&["squashfs 128K (kernel)"]),
        }],
    },
    Figure {
        experiment: "boot",
        title: "Start-up of programs",
        about: "chroot starts programs of Debian in a newly mounted tree, whose image is not in the page cache: alone, and \
                while fio reads at random from the disk. LZ4HC.",
        paper: "EROFS “reduces the boot time of real-world applications by up to 22.9%” (abstract).",
        metrics: &[
            metric("ms", "milliseconds", 1),
            metric("daemon_ms", "the daemon's processor time, ms", 0),
        ],
        claims: &[
            Claim {
                statement: "Programs start faster from the kernel's EROFS than from ext4",
                system: KERNEL,
                metric: "ms",
                cases: ALL,
                relation: Relation::LessThan(&["ext4 (kernel)"]),
            },
            Claim {
                statement: "Programs start faster from the kernel's EROFS than from squashfs 128K",
                system: KERNEL,
                metric: "ms",
                cases: ALL,
                relation: Relation::LessThan(&["squashfs 128K (kernel)"]),
            },
            Claim {
                statement: "Programs start faster from ferofs than from erofsfuse",
                system: FEROFS,
                metric: "ms",
                cases: ALL,
                relation: Relation::LessThan(&["erofsfuse"]),
            },
        ],
    },
];
