//! How much the evaluation measures: the full run and the quick one.

const MIB: u64 = 1 << 20;

/// The amount of work of a run.
#[derive(Debug)]
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// After this time no new measurement starts.
    pub(crate) minutes: u64,
    pub(crate) rounds: usize,
    /// fio stops after this time: a slow system reads less.
    pub(crate) fio_seconds: u32,
    /// Bytes of a large file of real data.
    pub(crate) file_size: u64,
    /// Bytes of a generated file whose compression saves a given percentage.
    pub(crate) generated_size: u64,
    /// Large files of real data, by name.
    pub(crate) datasets: &'static [&'static str],
    /// Percentages that compression saves.
    pub(crate) savings: &'static [u64],
    /// The number of programs whose start is measured.
    pub(crate) programs: usize,
}

pub(crate) const FULL: Scale = Scale {
    name: "full",
    minutes: 84,
    rounds: 3,
    fio_seconds: 4,
    file_size: 512 * MIB,
    generated_size: 128 * MIB,
    datasets: &["text", "mixed"],
    savings: &[0, 25, 50, 75, 95],
    programs: 5,
};

pub(crate) const QUICK: Scale = Scale {
    name: "quick",
    minutes: 5,
    rounds: 1,
    fio_seconds: 1,
    file_size: 64 * MIB,
    generated_size: 32 * MIB,
    datasets: &["text"],
    savings: &[0, 50, 95],
    programs: 2,
};
