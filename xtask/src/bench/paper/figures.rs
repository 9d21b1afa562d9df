//! The figures of the report: what each shows, what is printed of the same by the paper, and what can be held against it.
//!
//! Of the paper only what is public in words is repeated: its abstract, its authors' slides, and a second-hand copy of a
//! talk. Where these give no number, none is given.

/// One figure, of one experiment.
#[derive(Debug)]
pub(super) struct Figure {
    pub(super) experiment: &'static str,
    pub(super) title: &'static str,
    /// What was done, in a sentence or two.
    pub(super) about: &'static str,
    /// What the paper, or one who should know, says of it.
    pub(super) paper: &'static str,
    pub(super) metrics: &'static [Metric],
    pub(super) plot: Plot,
    pub(super) claims: &'static [Claim],
}

/// A figure's name in the records, and how it is shown.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) digits: usize,
}

/// How the first metric is drawn.
#[derive(Debug)]
pub(super) enum Plot {
    /// A bar for each contestant, a picture for each case.
    Bars,
    /// A line for each contestant, over what follows `@` in the case; the axis' title.
    Lines(&'static str),
}

/// Something that the figures can agree with or not.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) says: &'static str,
    pub(super) who: &'static str,
    pub(super) metric: &'static str,
    /// In cases that have one of these in their names.
    pub(super) cases: &'static [&'static str],
    pub(super) holds: Holds,
}

#[derive(Debug)]
pub(super) enum Holds {
    MoreThan(&'static [&'static str]),
    LessThan(&'static [&'static str]),
    AtMost(f64),
}

const fn metric(name: &'static str, title: &'static str, digits: usize) -> Metric {
    Metric { name, title, digits }
}

const SPEED: Metric = metric("mib_s", "MiB/s", 1);
const CPU: Metric = metric("cpu_s_gib", "processor seconds of the machine, for each GiB", 2);
const DAEMON: Metric = metric("daemon_s_gib", "of these, the daemon's", 2);
const FERO: &str = "ferofs (FUSE)";
const KERNEL: &str = "EROFS (kernel)";
const SQUASHFS: &[&str] =
    &["squashfs 4K (kernel)", "squashfs 8K (kernel)", "squashfs 16K (kernel)", "squashfs 128K (kernel)"];
const ALL: &[&str] = &[""];

pub(super) const FIGURES: [Figure; 13] = [
    Figure {
        experiment: "micro",
        title: "FIO micro-benchmarks (figures 7 and 8)",
        about: "fio reads a large file in pieces of 4 KiB: in sequence, at random, and the first piece of each 128 KiB. \
                The image is out of the page cache before each turn. Processor time of the machine, fio's start included, is told \
                where much is read.",
        paper: "“EROFS outperforms existing compressed read-only file systems with various micro-benchmarks” (abstract).",
        metrics: &[SPEED, CPU, DAEMON],
        plot: Plot::Bars,
        claims: &[
            Claim {
                says: "The kernel's EROFS reads faster than squashfs of any block size",
                who: KERNEL,
                metric: "mib_s",
                cases: ALL,
                holds: Holds::MoreThan(SQUASHFS),
            },
            Claim {
                says: "ferofs does so through FUSE, too",
                who: FERO,
                metric: "mib_s",
                cases: ALL,
                holds: Holds::MoreThan(SQUASHFS),
            },
            Claim {
                says: "ferofs reads faster than erofsfuse",
                who: FERO,
                metric: "mib_s",
                cases: ALL,
                holds: Holds::MoreThan(&["erofsfuse"]),
            },
        ],
    },
    Figure {
        experiment: "sizes",
        title: "Compressed sizes (figure 9)",
        about: "The same files in images of each kind, by LZ4HC but for btrfs; of btrfs and ext4, the blocks in use.",
        paper: "EROFS is deployed “while nearly halving the storage usage” (abstract). Output of a fixed size \
                compresses better than input of the same fixed size (section 2).",
        metrics: &[metric("percent", "percent of the source", 1), metric("mib", "MiB", 1)],
        plot: Plot::Bars,
        claims: &[Claim {
            says: "EROFS of 4 KiB is smaller than squashfs of 4 KiB",
            who: "ferofs 4K",
            metric: "mib",
            cases: ALL,
            holds: Holds::LessThan(&["squashfs 4K"]),
        }],
    },
    Figure {
        experiment: "memory",
        title: "Memory after reading (figure 10)",
        about: "A quarter of the file is read. Charged: to the control group of reader and daemon, the page cache with \
                the content itself included. Gone: of what the whole machine had free, caches and all, which is noisy. Private: \
                the daemon's own dirty memory, at most.",
        paper: "The authors' slides say “Memory Consumption 89%” of what EROFS saves against squashfs.",
        metrics: &[
            metric("charged_mib", "charged, MiB", 1),
            metric("gone_mib", "gone, MiB", 1),
            metric("private_mib", "private, MiB", 1),
        ],
        plot: Plot::Bars,
        claims: &[
            Claim {
                says: "The kernel's EROFS takes less than squashfs of 128 KiB",
                who: KERNEL,
                metric: "charged_mib",
                cases: ALL,
                holds: Holds::LessThan(&["squashfs 128K (kernel)"]),
            },
            Claim {
                says: "ferofs' daemon takes less than erofsfuse",
                who: FERO,
                metric: "private_mib",
                cases: ALL,
                holds: Holds::LessThan(&["erofsfuse"]),
            },
        ],
    },
    Figure {
        experiment: "io",
        title: "I/O issued for what is asked for (table 1)",
        about: "A 32nd of the file is asked for (16 MiB of 512 in the full run) in 4 KiB pieces; what a loop device then \
                reads, for daemons as for the kernel, with the kernel's read-ahead on it. What ferofs itself reads is told by \
                its own counters.",
        paper: "The authors' slides say “Read Amplification 84%” of what EROFS saves against squashfs. A second-hand \
                copy of a talk by Huawei (wpsshop.cn, “华为EROFS文件系统的性能测试”) gives MB read for 10 MB of enwik9, \
                sequential, random and stride: EROFS 6.84, 17.09, 16.38; squashfs 8K 6.39, 21.12, 21.83; squashfs \
                128K 4.51, 114.72, 141.86; ext4 10.96, 10.01, 10.02.",
        metrics: &[
            metric("times", "times what was asked for", 2),
            metric("own_times", "of these, what ferofs itself reads", 2),
            metric("issued_mib", "MiB issued", 1),
        ],
        plot: Plot::Bars,
        claims: &[
            Claim {
                says: "Random reads and strides of the kernel's EROFS read less than squashfs of 8 and 128 KiB",
                who: KERNEL,
                metric: "times",
                cases: &["random", "stride"],
                holds: Holds::LessThan(&["squashfs 8K (kernel)", "squashfs 128K (kernel)"]),
            },
            Claim {
                says: "So does ferofs",
                who: FERO,
                metric: "times",
                cases: &["random", "stride"],
                holds: Holds::LessThan(&["squashfs 8K (kernel)", "squashfs 128K (kernel)"]),
            },
            Claim {
                says: "ferofs itself reads at most two blocks for a random one",
                who: FERO,
                metric: "own_times",
                cases: &["random"],
                holds: Holds::AtMost(2.0),
            },
        ],
    },
    Figure {
        experiment: "savings",
        title: "Throughput against space savings (figure 11)",
        about: "Files of which a share of each block is zero, and the rest random: compression saves about so much.",
        paper: "No number of it is public in words.",
        metrics: &[SPEED, CPU],
        plot: Plot::Lines("percent saved"),
        claims: &[Claim {
            says: "Where most is saved, the kernel's EROFS reads faster than ext4",
            who: KERNEL,
            metric: "mib_s",
            cases: &["@ 95"],
            holds: Holds::MoreThan(&["ext4 (kernel)"]),
        }],
    },
    Figure {
        experiment: "strategies",
        title: "Strategies and policies of decoding (section 5.6)",
        about: "ferofs with each of `--decode`, from an image in the page cache.",
        paper: "No number of it is public in words. In user space the order need not be the kernel's: see READING.md.",
        metrics: &[SPEED, DAEMON],
        plot: Plot::Bars,
        claims: &[Claim {
            says: "The default takes less processor time than vmap and buffer alone",
            who: "auto",
            metric: "daemon_s_gib",
            cases: ALL,
            holds: Holds::LessThan(&["vmap", "buffer"]),
        }],
    },
    Figure {
        experiment: "readers",
        title: "Readers side by side",
        about: "So many threads read parts of one file each, from an image in the page cache.",
        paper: "Not in the paper.",
        metrics: &[SPEED, CPU],
        plot: Plot::Lines("readers"),
        claims: &[],
    },
    Figure {
        experiment: "tails",
        title: "Latencies where memory is short",
        about: "Two readers at random, with memory enough, and in a control group of 32 MiB for readers, daemon and page \
                cache together. Microseconds of the middle read, of the 99th percentile, and of the longest.",
        paper: "squashfs made a phone lag, freeze and reboot for want of memory (the authors' slides).",
        metrics: &[
            metric("p99_us", "99th percentile, µs", 1),
            metric("p50_us", "median, µs", 1),
            metric("max_us", "longest, µs", 0),
            SPEED,
        ],
        plot: Plot::Bars,
        claims: &[Claim {
            says: "In 32 MiB, ferofs' late reads come before those of squashfs of 128 KiB",
            who: FERO,
            metric: "p99_us",
            cases: &["32 MiB"],
            holds: Holds::LessThan(&["squashfs 128K (kernel)"]),
        }],
    },
    Figure {
        experiment: "boot",
        title: "Start-up of programs",
        about: "Programs of this machine, started by chroot in a tree that was just mounted, with the image out of the page \
                cache; alone, and while fio reads the disk at random. LZ4HC.",
        paper: "EROFS “reduces the boot time of real-world applications by up to 22.9%” (abstract).",
        metrics: &[
            metric("ms", "milliseconds", 1),
            metric("daemon_ms", "the daemon's processor time, ms", 0),
        ],
        plot: Plot::Bars,
        claims: &[
            Claim {
                says: "Programs start faster from the kernel's EROFS than from ext4",
                who: KERNEL,
                metric: "ms",
                cases: ALL,
                holds: Holds::LessThan(&["ext4 (kernel)"]),
            },
            Claim {
                says: "… and than from squashfs of 128 KiB",
                who: KERNEL,
                metric: "ms",
                cases: ALL,
                holds: Holds::LessThan(&["squashfs 128K (kernel)"]),
            },
            Claim {
                says: "From ferofs they start faster than from erofsfuse",
                who: FERO,
                metric: "ms",
                cases: ALL,
                holds: Holds::LessThan(&["erofsfuse"]),
            },
        ],
    },
    Figure {
        experiment: "build",
        title: "Building",
        about: "Images of the tree of programs, by each tool's algorithms; the cache is warm. Fragments for EROFS.",
        paper: "Not in the paper.",
        metrics: &[
            metric("seconds", "seconds", 2),
            metric("cpu_s", "processor seconds", 2),
            metric("peak_mib", "peak memory, MiB", 0),
            metric("mib", "MiB", 1),
            metric("percent", "percent of the source", 1),
        ],
        plot: Plot::Bars,
        claims: &[],
    },
    Figure {
        experiment: "walk",
        title: "Reading the whole tree, file by file",
        about: "One thread opens and reads each file, in the order of names.",
        paper: "Not in the paper.",
        metrics: &[
            metric("seconds", "seconds", 2),
            metric("mib_s", "MiB/s", 1),
            metric("cpu_s", "processor seconds of the machine", 2),
            metric("daemon_s", "of these, the daemon's", 2),
        ],
        plot: Plot::Bars,
        claims: &[],
    },
    Figure {
        experiment: "window",
        title: "LZ4's window",
        about: "How far back LZ4HC may look, in KiB, and how much of its page pool the read engine then uses at most, \
                decoding by `rolling`.",
        paper: "No number of it is public in words.",
        metrics: &[metric("percent", "percent of the source", 1), metric("pool_kib", "of the pool, KiB", 0)],
        plot: Plot::Lines("KiB of window"),
        claims: &[],
    },
    Figure {
        experiment: "clusters",
        title: "Size of clusters",
        about: "LZ4HC in clusters of so many KiB: random reads of a cold image, its size, and what is read of the device.",
        paper: "Not in the paper, which has 4 KiB.",
        metrics: &[SPEED, metric("mib", "MiB", 1), metric("times", "times what was asked for", 2), CPU],
        plot: Plot::Lines("KiB of a cluster"),
        claims: &[],
    },
];
